"""Pretraining records from a corpus, with precomputed permutation masks.

Begin with `build.py`. `options.py` has its settings, `plan.py` the sets of a run, `worker.py` what one
process does with a part of the corpus, `output_folder.py` how an interrupted build resumes, `report.py`
the summary and warnings; `compat_sampling.py` samples as the original does.
"""

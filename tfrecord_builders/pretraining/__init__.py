"""Pretraining records from a corpus, with precomputed permutation masks.

Begin with `build.py`. `options.py` has its settings, `plan.py` the sets of a run, `worker.py` one process'
job on a part of the corpus, `output_folder.py` resumes interrupted builds, `report.py` has the summary and
warnings; `compat_sampling.py` samples as the original does.
"""

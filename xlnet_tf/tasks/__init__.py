"""The tasks that models are trained for, one folder each; at the top, what they share.

Begin with `finetuning.py`, which all tasks but pretraining derive from, then `classification/task.py`.
A task's folder has `task.py` (settings, losses, training metrics), `metrics.py`, `files.py` (what `predict`
writes) and `serving.py` (text in, answers out). `pretraining/` is permutation language modelling.
"""

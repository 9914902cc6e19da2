"""The tasks that models are trained for: settings, losses, metrics and predictions; one file for each task.

Begin with `finetuning.py`, which all tasks but pretraining derive from, then `classification.py`.
`pretraining.py` is permutation language modelling. `metrics/` scores predictions, `predictions/` writes them.
"""

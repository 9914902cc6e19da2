"""Permutation language modelling, and what pretrained weights are served as.

Begin with `task.py`; `serving.py` is the language model as a SavedModel.
"""

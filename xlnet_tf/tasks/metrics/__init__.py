"""The metrics of each task, from arrays of outputs and answers. Begin with `classification.py`."""

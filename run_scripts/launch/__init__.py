"""Runs a training on a TPU of Google Cloud from its creation to its deletion.

Begin with `supervise.py`, the loop that every job runs in; `job.py` is what a yaml file says, `checks.py`
what is verified first, `cloud_tpu.py` and `kubernetes.py` are the places where a job can run.
"""

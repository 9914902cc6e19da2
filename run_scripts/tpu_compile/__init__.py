"""The command `tpu_compile`: steps and served models compiled for a TPU. Begin with `plan.py`."""

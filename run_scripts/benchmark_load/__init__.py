"""The command `benchmark_load`: many clients and one served model. Begin with `measure.py`."""

"""The command `benchmark_serving`: latency of served models next to others. Begin with `measure.py`."""

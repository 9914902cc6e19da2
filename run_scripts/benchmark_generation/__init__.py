"""The command `benchmark_generation`: tokens per second next to Hugging Face. Begin with `measure.py`."""

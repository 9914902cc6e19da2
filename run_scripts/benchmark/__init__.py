"""The command `benchmark`, and what all benchmarks share.

Begin with `__main__.py`. `timing.py` measures, `step.py` times training steps, `data.py` the builder and
the reader, `peers.py` other implementations.
"""

"""Models in OpenVINO's format: written with TensorFlow, and answered without it.

Begin with `compiled.py`, which runs a graph; `conversion.py` makes one of a TensorFlow function.
"""

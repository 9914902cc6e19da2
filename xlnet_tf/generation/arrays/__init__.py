"""What a language model does with numpy arrays, without TensorFlow.

The forms for TensorFlow's graphs are in the parent folder. Begin with engine.py: what computes the numbers.
"""

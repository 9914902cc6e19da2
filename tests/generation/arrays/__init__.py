"""Tests of what needs no TensorFlow, compared with TensorFlow's graphs; begin with test_sampling.py."""

"""Tests of xlnet_tf/models/.

Begin with test_golden.py, the original's numbers, and test_any_configuration.py, what holds for any model.
"""

"""The tests mirror the tree; `helpers/` has what they share.

Begin with models/test_golden.py, the original's numbers.
"""

"""Tests of pages for people and their curves. Begin with `test_curves.py`."""

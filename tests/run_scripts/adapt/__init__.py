"""Continued pretraining. Begin with `test_leaks.py`."""

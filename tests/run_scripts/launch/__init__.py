"""Launching jobs on the stand-in for Google Cloud. Begin with `test_supervise.py`."""

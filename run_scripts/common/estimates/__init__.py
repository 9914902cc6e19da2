"""Estimates of building records and pretraining on them, by plain arithmetic. Begin with `records.py`."""

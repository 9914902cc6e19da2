"""What building records and pretraining on them take, by plain arithmetic. Begin with `records.py`."""

"""Ranking of passages or replies for a query. Begin with `task.py`, then `losses.py`."""

"""Losses of tasks. Begin with `labels.py`, for rare and frequent classes; `ranking.py` is for ranking."""

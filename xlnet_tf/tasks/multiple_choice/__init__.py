"""Which of several options answers a question about a text (RACE). Begin with `task.py`."""

"""Classification with one or several labels, and regression. Begin with `task.py`."""

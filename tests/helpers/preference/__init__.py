"""A task from outside: which of two texts is preferred. `entry.py` is all that the project is told of it."""

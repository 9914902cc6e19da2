"""A task from outside: which of two texts is preferred.

Begin with entry.py, which is all that the project knows of it.
"""

"""A task from outside: which of two texts is preferred.

Begin with entry.py, which is all that the project is told of it.
"""

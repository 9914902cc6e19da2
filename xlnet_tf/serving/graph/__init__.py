"""What a SavedModel holds, and how it is asked in Python.

Begin with `exported_model.py`, which the served models of all tasks derive from.
"""

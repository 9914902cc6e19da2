"""The contents of a SavedModel, and how Python code calls them.

Begin with `exported_model.py`, which the served models of all tasks derive from.
"""

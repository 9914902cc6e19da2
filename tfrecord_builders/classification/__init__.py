"""Examples of classification and regression from tables and known data sets.

Begin with `build.py`; `presets.py` knows the data sets, `labels.py` finds a table's labels.
"""

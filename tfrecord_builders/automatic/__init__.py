"""Examples from a table of your own: its task, columns and length are found. Begin with `build.py`."""

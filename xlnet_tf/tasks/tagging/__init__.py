"""Tags of words, such as named entities. Begin with `task.py`."""

"""The command `export`: SavedModels of trained models. Begin with `__main__.py`."""

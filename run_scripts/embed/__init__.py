"""The command embed: vectors of texts and of corpora. Begin with `__main__.py`."""

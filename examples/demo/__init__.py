"""The command `demo`: from raw text to a fine-tuned XLNet. Begin with `__main__.py`."""

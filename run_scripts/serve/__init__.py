"""The command `serve`: a local server of exported models. Begin with `__main__.py`."""

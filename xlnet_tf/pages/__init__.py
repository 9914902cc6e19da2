"""Results as self-contained pages for people, with curves. Begin with `page.py`."""

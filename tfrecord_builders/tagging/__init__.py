"""Examples of tagging.

Begin with `build.py`; `data.py` reads the formats, `words.py` encodes words, `schemes.py` BIO and others.
"""

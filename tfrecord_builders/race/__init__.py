"""Examples of multiple choice from RACE files. Begin with `build.py`; `questions.py` reads the files."""

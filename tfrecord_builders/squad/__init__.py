"""Examples of question answering from SQuAD files. Begin with `build.py`; `data.py` reads the files."""

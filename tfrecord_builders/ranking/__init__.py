"""Examples of ranking. Begin with `build.py`; `queries.py` and `trec.py` read the formats."""

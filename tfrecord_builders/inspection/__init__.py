"""What `run_scripts.inspect_records` shows: records, checks, statistics, differences, pictures.

Begin with `show.py`. `invariants.py` has what must hold of every record and `check.py` applies it to a
set, `recovered_text.py` puts the text of a set together again.
"""

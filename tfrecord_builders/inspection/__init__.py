"""What `run_scripts.inspect_records` shows: records, checks, statistics, differences, pictures.

Begin with `show.py`. `invariants.py` has the invariants of every record and `check.py` applies them to a set,
`recovered_text.py` restores the text of a set.
"""

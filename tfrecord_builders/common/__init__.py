"""What builders share: tables of examples, their options, worker processes, Apache Beam, progress.

Begin with `tables.py`, which reads csv, tsv and jsonl, and `runners.py`, which runs jobs in processes.
"""

"""What `run_scripts.predict` does: for sets of examples, for texts, for corpora, and by a server.

Begin with `options.py`.
"""

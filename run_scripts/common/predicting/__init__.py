"""Implements `run_scripts.predict`: for sets of examples, texts, corpora, and by a server.

Begin with `options.py`.
"""

"""Runs the commands and the code of README.md and docs/ on toy data; begin with pages.py, then runner.py."""

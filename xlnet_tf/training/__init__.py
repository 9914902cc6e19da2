"""The trainer: optimizer, memory, checkpoints, resuming, interruptions.

Begin with `run.py`, which trains and evaluates, and `trainer.py`, one step of it.
"""

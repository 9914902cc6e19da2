"""The trainer: optimizer, memory, checkpoints, resuming, interruptions.

Begin with `run.py`, which trains and evaluates, `trainer.py`, one step of it, and `task.py`, what both ask a
task.
"""

"""The trainer: optimizer, memory, checkpoints, resuming, interruptions.

Begin with `run.py`, which opens a run, `loop.py`, its steps and evaluations, `trainer.py`, one step, and
`task.py` and `data.py`, what these ask a task.
"""

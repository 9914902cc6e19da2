"""Questions that words of a passage answer (SQuAD).

Begin with `task.py`; `answers.py` turns what the model says of windows into answers.
"""

"""What `predict` writes; one file for each task.

Begin with `question_answering.py` for the longest of them.
"""

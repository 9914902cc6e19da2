"""Texts in, answers out, whatever computes them: what served models share that needs no TensorFlow.

Begin with `text_answers.py`, which answers any number of rows.
"""

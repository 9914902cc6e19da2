"""Compiles training steps and served models for TPUs on machines without one.

Begin with `steps.py`, which lowers a training step, and `compilation.py`, which has the TPU's compiler
compile it and reports memory, operations and time.
"""

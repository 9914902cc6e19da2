"""Compares this code with others, outside the installed package: python -m benchmarks.step, for one.

Begin with harness.py, which all share: what is compared runs in turn, and one table shows it. step.py,
finetune.py, generation.py, serving.py, learning.py, load.py, data.py, memory.py, tpu_step.py and hlo.py are
programs; peers.py has the other implementations.
"""

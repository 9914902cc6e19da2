"""What commands share: settings of experiments as flags, dry runs, estimates.

Begin with `experiment.py`, which turns recipes and flags into one checked configuration.
"""

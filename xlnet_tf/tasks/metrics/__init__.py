"""What the metrics of all tasks share: calibration, resampling, thresholds, tables.

Begin with `calibration.py`. The metrics of a task are in its folder.
"""

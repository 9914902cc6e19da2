"""Thresholds that turn scores into decisions."""

import numpy as np

DECISION = 0.5  # of several labels, those with at least this probability are predicted


def threshold_between(accepted: float, rejected: float) -> float:
    """Returns the threshold between the last score that is accepted and the next one, which is rejected.

    It is their middle, rounded to float32, so that the same texts, computed by another route with other
    rounding, are decided in the same way. If float32 has no number between them, it is the accepted score.
    """
    middle = float(np.float32((accepted + rejected) / 2))
    return middle if min(accepted, rejected) < middle < max(accepted, rejected) else float(accepted)

"""Thresholds between scores, so that rounding does not move a score to the other side."""

import numpy as np


def between(score: float, neighbour: float) -> float:
    """Returns the middle of two scores, or `score` if float32 has no number between them.

    Models compute scores in float32, so the middle is rounded to float32.

    Args:
        score: the last one on its side of the threshold.
        neighbour: the next one on the other side.
    """
    low, high = sorted(float(np.float32(value)) for value in (score, neighbour))
    middle = float(np.float32(low / 2 + high / 2))
    return middle if low < middle < high else float(score)

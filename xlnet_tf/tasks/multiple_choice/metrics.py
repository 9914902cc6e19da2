"""Accuracy of multiple choice."""

from collections.abc import Sequence

import numpy as np


def accuracies(probabilities: np.ndarray, labels: np.ndarray, levels: Sequence[str]) -> dict[str, float]:
    """Returns the accuracy, and that of each level that questions have.

    Where k options share the highest probability, a hit counts 1/k: the mean over all orders of the options.
    Probabilities are [questions, C], labels int [questions].
    """
    is_highest = probabilities == probabilities.max(axis=1, keepdims=True)
    hits = is_highest[np.arange(len(labels)), labels] / is_highest.sum(axis=1)
    found = {"accuracy": float(np.mean(hits))}
    for level in sorted(set(levels) - {""}):
        found[f"accuracy_{level}"] = float(np.mean(hits[np.array(levels) == level]))
    return found

"""How well probabilities are calibrated, and the temperature that calibrates them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from absl import logging

from xlnet_tf.errors import UserError

BINS = 15
_RANGE = (0.02, 50.0)  # of temperatures
_FLAT = 1e-12  # a slope that is nothing but rounding


class Probabilities(NamedTuple):
    """The probabilities [N, C] that a model predicts for N examples, and the truth, bool."""

    values: np.ndarray
    targets: np.ndarray
    labels: Sequence[str]
    exclusive: bool  # whether only one of C may come true
    logits: np.ndarray | None = None  # without them no temperature can be served


class Bin(NamedTuple):
    """Claims of about the same confidence (their mean), and the frequency: the share that came true."""

    confidence: float
    frequency: float
    count: int


def reliability(probabilities: Probabilities) -> list[Bin]:
    """Returns the claims in bins of equal width, from least to most confident; empty bins are left out.

    Of exclusive classes, the claim is that the likeliest one is right; else each probability is a claim.
    """
    values, targets = probabilities.values, probabilities.targets
    if probabilities.exclusive:
        best = np.argmax(values, axis=1)[:, None]
        values, targets = (np.take_along_axis(array, best, axis=1) for array in (values, targets))
    values, targets = np.ravel(values).astype(np.float64), np.ravel(targets)
    numbers = np.clip(np.ceil(values * BINS).astype(int) - 1, 0, BINS - 1)  # (low, high], as in the source
    counts = np.bincount(numbers, minlength=BINS)
    confidences, frequencies = (np.bincount(numbers, weights, BINS) for weights in (values, targets))
    return [
        Bin(float(confidences[n] / counts[n]), float(frequencies[n] / counts[n]), int(counts[n]))
        for n in np.flatnonzero(counts)
    ]


def calibration_scores(probabilities: Probabilities) -> dict[str, float]:
    """Returns the scores of calibration, 0 at best.

    ece: the mean distance between confidence and frequency, over all claims.
    brier: the squared distance to what came true: of exclusive classes the sum, else the mean.

    Source: Guo et al., On Calibration of Modern Neural Networks, 2017, equation 3; Brier, Verification of
    Forecasts Expressed in Terms of Probability, 1950.
    """
    bins = reliability(probabilities)
    distances = sum(each.count * abs(each.confidence - each.frequency) for each in bins)
    squares = np.square(probabilities.values - probabilities.targets)
    return {
        "ece": distances / sum(each.count for each in bins),
        "brier": float(np.mean(np.sum(squares, axis=1) if probabilities.exclusive else squares)),
    }


class Point(NamedTuple):
    """Precision, nan if no text gets it, and recall, nan if none has it, of a label from a threshold on."""

    threshold: float
    precision: float
    recall: float
    said: int


def threshold_curve(
    values: np.ndarray, targets: np.ndarray, thresholds: Sequence[float] = tuple(np.arange(0.05, 1, 0.05))
) -> list[Point]:
    """Returns precision and recall of one label for each threshold; probabilities [N], targets bool [N]."""
    points = []
    for threshold in (round(float(each), 4) for each in thresholds):
        said = values >= threshold
        hits, all_said, all_true = np.sum(said & targets), int(np.sum(said)), np.sum(targets)
        precision = float(hits / all_said) if all_said else np.nan
        recall = float(hits / all_true) if all_true else np.nan
        points.append(Point(threshold, precision, recall, all_said))
    return points


def temperatures(probabilities: Probabilities) -> np.ndarray:
    """Finds the temperatures T for which softmax(logits / T), or sigmoid, gives the targets most likelihood.

    Dividing by a temperature never changes which class is likeliest, nor which side of one half a
    probability is on. Examples without an answer are left out. Returns [1], or one for each label, [C], which
    is 1 with a warning for one without a best temperature. If there is none at all, a UserError says why.

    Source: Guo et al., 2017, section 4.2.
    """
    answered = probabilities.targets.any(axis=1) | (not probabilities.exclusive)
    logits, targets = np.asarray(probabilities.logits, np.float64)[answered], probabilities.targets[answered]
    if probabilities.exclusive:
        found = _temperature(logits, targets, scipy.special.softmax)
        if isinstance(found, str):
            raise UserError(f"cannot calibrate: the examples are {found}")
        return np.array([found])
    columns = zip(logits.T[..., None], targets.T[..., None])  # [N, 1] of each label
    every = [_temperature(*column, lambda logits, axis: scipy.special.expit(logits)) for column in columns]
    named = zip(probabilities.labels, every)
    without = [f"label {name}: {found}" for name, found in named if isinstance(found, str)]
    if len(without) == len(every):
        raise UserError(f"cannot calibrate: {'; '.join(without)}")
    if without:
        logging.warning("labels that are not calibrated, and keep temperature 1: %s", "; ".join(without))
    return np.array([1.0 if isinstance(found, str) else found for found in every])


def _temperature(logits: np.ndarray, targets: np.ndarray, to_probabilities) -> float | str:
    """Returns the best temperature, or why there is none."""

    def slope(inverse):  # of the loss, which is convex in the inverse of the temperature
        return np.mean(np.sum((to_probabilities(inverse * logits, axis=1) - targets) * logits, axis=1))

    coldest, hottest = (1 / temperature for temperature in _RANGE)
    if slope(coldest) <= _FLAT:
        return "all predicted right, so no temperature is best; give a larger set"
    if slope(hottest) >= 0:
        return "not predicted better than by chance, so no temperature is best; train the model longer"
    return 1 / scipy.optimize.brentq(slope, hottest, coldest, xtol=1e-12)

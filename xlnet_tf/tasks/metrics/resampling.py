"""How certain a metric is: bootstrap intervals, and a paired test between two models.

Both treat the units of a set (texts, questions, queries or sentences) as a sample, and know of a metric only
how it is computed from units. So they also serve metrics that are not means: F1, correlation, AUC.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlnet_tf.progress_bar import ProgressBar

SAMPLES = 1000
CONFIDENCE = 0.95

Units = Mapping[str, np.ndarray]  # name -> [units, ...]
Scorer = Callable[[Units], Mapping[str, float]]


class Interval(NamedTuple):
    """The confidence interval of a metric at the level CONFIDENCE, from `low` to `high`."""

    low: float
    high: float


class Difference(NamedTuple):
    """How much better one model is than another by a metric."""

    value: float
    interval: Interval
    p: float  # probability of at least this difference, either way, between equally good models


def count(units: Units) -> int:
    return len(next(iter(units.values())))


def intervals(score: Scorer, units: Units, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
    """Computes the intervals of all metrics by the percentile bootstrap, from `samples` drawn sets.

    Samples in which a metric is undefined (AUC of one class) are left out; an interval is nan if all are.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    draws = [score(_take(units, rows)) for rows in _draws(count(units), samples, seed, "intervals")]
    return {name: _percentiles(draws, name) for name in score(units)}


def differences(
    score: Scorer, first: Units, second: Units, samples: int = SAMPLES, seed: int = 0
) -> dict[str, Difference]:
    """Compares two models on the same units, in the same order, by all metrics.

    Intervals come from the bootstrap of pairs. p comes from approximate randomization: in each sample every
    unit's answers are exchanged or not, with equal odds; p is the share of samples that differ at least as
    much as the models do, the models themselves counted.

    Source: Noreen, Computer-Intensive Methods for Testing Hypotheses, 1989; Yeh, COLING 2000.
    """
    if count(first) != count(second):
        raise ValueError(f"{count(first)} and {count(second)} units: expected the same set")
    observed = _minus(score(first), score(second))
    draws = [
        _minus(score(_take(first, rows)), score(_take(second, rows)))
        for rows in _draws(count(first), samples, seed, "intervals of differences")
    ]
    exchanges = np.random.default_rng([seed, 1])
    as_extreme = dict.fromkeys(observed, 1)  # the models as they are
    for _ in ProgressBar(range(samples), desc="exchanges", leave=False):
        exchanged = exchanges.random(count(first)) < 0.5
        mixed = _minus(score(_mix(exchanged, first, second)), score(_mix(exchanged, second, first)))
        for name, value in observed.items():
            # Sums in another order may differ in their last digits.
            as_extreme[name] += not abs(mixed.get(name, np.nan)) < abs(value) * (1 - 1e-9)
    return {
        name: Difference(value, _percentiles(draws, name), as_extreme[name] / (samples + 1))
        for name, value in observed.items()
    }


def _draws(number: int, samples: int, seed: int, title: str) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(seed)
    for _ in ProgressBar(range(samples), desc=title, leave=False):
        yield generator.integers(number, size=number)


def _take(units: Units, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in units.items()}


def _mix(exchanged: np.ndarray, first: Units, second: Units) -> dict[str, np.ndarray]:
    """Returns the second model's answers where they are exchanged, and the first's elsewhere."""
    return {
        name: np.where(exchanged.reshape(-1, *[1] * (first[name].ndim - 1)), second[name], first[name])
        for name in first
    }


def _minus(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first[name] - second[name] for name in first if name in second}


def _percentiles(draws: Sequence[Mapping[str, float]], name: str) -> Interval:
    """Returns a metric's interval; a sample may lack the metric, as that of questions without an answer."""
    defined = [draw[name] for draw in draws if np.isfinite(draw.get(name, np.nan))]
    if not defined:
        return Interval(np.nan, np.nan)
    tail = (1 - CONFIDENCE) / 2
    return Interval(*map(float, np.quantile(defined, [tail, 1 - tail])))

"""Scores of probabilities against definitions spelled out here, and temperatures against scipy's optimum."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics as sk
from hypothesis import given
from hypothesis import strategies as st

from xlnet_tf.errors import UserError
from xlnet_tf.tasks.metrics import calibration
from xlnet_tf.tasks.metrics.calibration import Probabilities, temperatures
from xlnet_tf.tasks.metrics.thresholds import threshold_between

LABELS = ["a", "b", "c"]


def drawn(seed, exclusive, number=200, scale=2.0, truth=1.0):
    """Returns logits, and targets that come true as logits / truth say."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, scale, [number, 3])
    if exclusive:
        likely = scipy.special.softmax(logits / truth, axis=1)
        targets = np.eye(3, dtype=bool)[[generator.choice(3, p=p) for p in likely]]
    else:
        targets = generator.random([number, 3]) < scipy.special.expit(logits / truth)
    return logits, targets


def probabilities(logits, targets, exclusive, labels=LABELS):
    values = scipy.special.softmax(logits, axis=1) if exclusive else scipy.special.expit(logits)
    return Probabilities(values, targets, labels, exclusive, logits)


def ece_by_definition(confidences, hits, bins=15):
    total = 0.0
    for low in range(bins):
        within = [i for i, c in enumerate(confidences) if low / bins < c <= (low + 1) / bins]
        if within:
            gap = np.mean([confidences[i] for i in within]) - np.mean([hits[i] for i in within])
            total += len(within) / len(confidences) * abs(gap)
    return total


@given(seed=st.integers(0, 1000), exclusive=st.booleans())
def test_scores_are_those_of_their_definitions(seed, exclusive):
    found = probabilities(*drawn(seed, exclusive), exclusive)
    if exclusive:
        best = found.values.argmax(axis=1)
        confidences, hits = found.values.max(axis=1), found.targets[np.arange(200), best]
        brier = np.mean([sk.brier_score_loss(t, v) for t, v in zip(found.targets.T, found.values.T)]) * 3
    else:
        confidences, hits = found.values.ravel(), found.targets.ravel()
        brier = sk.brier_score_loss(hits, confidences)
    scores = calibration.calibration_scores(found)
    assert scores["ece"] == pytest.approx(ece_by_definition(confidences, hits))
    assert scores["brier"] == pytest.approx(brier)
    assert sum(each.count for each in calibration.reliability(found)) == len(confidences)


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("truth", [0.5, 1.0, 3.0])
def test_temperature_is_the_optimum_and_changes_no_decision(exclusive, truth):
    logits, targets = drawn(1, exclusive, number=20_000, truth=truth)
    found = temperatures(probabilities(logits, targets, exclusive))
    assert found == pytest.approx(truth, rel=0.1)

    def loss(t, columns):
        if exclusive:
            return sk.log_loss(targets.argmax(axis=1), scipy.special.softmax(logits / t, axis=1))
        return sk.log_loss(targets[:, columns], scipy.special.expit(logits[:, columns] / t))

    for column, temperature in enumerate(found):
        best = scipy.optimize.minimize(lambda x, c=column: loss(x[0], c), [1.0], method="Nelder-Mead",
                                       options={"xatol": 1e-7, "fatol": 1e-12}).x[0]  # fmt: skip
        assert temperature == pytest.approx(best, rel=1e-4)
    if exclusive:
        np.testing.assert_array_equal((logits / found).argmax(axis=1), logits.argmax(axis=1))
    else:
        np.testing.assert_array_equal(scipy.special.expit(logits / found) >= 0.5, logits >= 0)


def test_no_temperature_is_best_of_perfect_or_useless_logits():
    targets = np.eye(3, dtype=bool)
    with pytest.raises(UserError, match="the examples are all predicted right, so no temperature is best"):
        temperatures(probabilities(targets * 2.0, targets, exclusive=True))
    with pytest.raises(UserError, match="are not predicted better than by chance"):
        temperatures(probabilities(targets * -2.0, targets, exclusive=True))
    several, labels = (
        np.array([[1.0, 0.5], [-1.0, -0.5], [1.0, -0.5]]),
        np.array([[1, 1], [0, 0], [1, 0]], bool),
    )
    with pytest.raises(UserError, match="label a: all predicted right, .*; label b: all pred"):
        temperatures(probabilities(several, labels, exclusive=False))


def test_a_label_without_a_best_temperature_keeps_one(caplog):
    logits = np.array([[1.0, 0.5], [-1.0, 0.5], [1.0, 0.5], [1.0, 0.5]])
    targets = np.array([[1, 1], [0, 0], [1, 1], [1, 1]], bool)
    always, fitted = temperatures(probabilities(logits, targets, False, ["rare", "frequent"]))
    assert always == 1 and fitted == pytest.approx(0.5 / math.log(3))  # three of four, at a logit of 0.5
    assert "not calibrated, and keep temperature 1: label rare: all predicted right" in caplog.text


def test_thresholds_count_what_is_said():
    values, targets = np.array([0.9, 0.6, 0.6, 0.1]), np.array([True, False, True, True])
    low, high, out_of_reach = calibration.threshold_curve(values, targets, [0.5, 0.8, 0.95])
    assert (low.precision, low.recall, low.said) == (pytest.approx(2 / 3), pytest.approx(2 / 3), 3)
    assert (high.precision, high.recall, high.said) == (1.0, pytest.approx(1 / 3), 1)
    assert np.isnan(out_of_reach.precision) and (out_of_reach.recall, out_of_reach.said) == (0, 0)
    # 0.15 of the table is 0.15 to who uses it, not 0.15000000000000002.
    curve = calibration.threshold_curve(np.array([0.15]), np.array([True]))
    said = {point.threshold: point.said for point in curve}
    assert said[0.15] == 1 and said[0.2] == 0


@given(st.floats(0, 1, width=32), st.integers(-3, 3))
def test_thresholds_between_neighbours_decide_in_float32(accepted, steps):
    rejected = accepted
    for _ in range(abs(steps)):
        rejected = np.nextafter(np.float32(rejected), np.float32(steps * np.inf))
    threshold = np.float32(threshold_between(accepted, rejected))
    assert min(accepted, rejected) <= threshold <= max(accepted, rejected)
    assert threshold != rejected or not steps

"""Intervals and tests against closed forms and enumerations of what they sample."""

import itertools

import numpy as np
import pytest

from xlnet_tf.tasks.classification.metrics import scores
from xlnet_tf.tasks.metrics import resampling


def accuracy(units):
    return {"accuracy": float(np.mean(units["right"]))}


def test_interval_of_a_mean_is_the_normal_one():
    right = np.random.default_rng(0).random(2000) < 0.8
    low, high = resampling.intervals(accuracy, {"right": right}, samples=2000)["accuracy"]
    half = 1.96 * np.std(right) / np.sqrt(len(right))
    assert low == pytest.approx(right.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(right.mean() + half, abs=0.15 * half)


def test_metrics_that_are_no_means_and_undefined_samples():
    labels = np.array([0] * 30 + [1])
    outputs = np.stack([np.linspace(1, 0, 31), np.linspace(0, 1, 31)], axis=1)

    def score(units):
        return scores("classification", ["auc", "f1"], units["label"], units["outputs"])

    found = resampling.intervals(score, {"label": labels, "outputs": outputs}, samples=200)
    assert found["auc"] == (1.0, 1.0)  # of the samples that have both classes
    assert found["f1"].low == 0 and found["f1"].high > 0
    constant = {"label": np.zeros(5, int), "outputs": outputs[:5]}
    assert np.isnan(resampling.intervals(score, constant, samples=5)["auc"]).all()


def test_p_is_that_of_all_exchanges():
    first = np.array([1, 1, 1, 1, 0, 1, 1, 0], float)
    second = np.array([0, 1, 0, 0, 0, 1, 0, 1], float)
    signs = np.array(list(itertools.product([1, -1], repeat=8)))
    observed = abs(np.mean(first - second))
    exact = np.mean(np.abs(signs @ (first - second)) / 8 >= observed - 1e-12)
    found = resampling.differences(accuracy, {"right": first}, {"right": second}, samples=20_000)["accuracy"]
    assert found.value == pytest.approx(np.mean(first - second))
    assert found.p == pytest.approx(exact, abs=0.01)
    assert found.interval.low < found.value < found.interval.high


def test_a_model_does_not_differ_from_itself():
    units = {"right": np.array([1.0, 0.0, 1.0])}
    assert resampling.differences(accuracy, units, units, samples=50)["accuracy"] == (0.0, (0.0, 0.0), 1.0)
    with pytest.raises(ValueError, match="3 and 2 units"):
        resampling.differences(accuracy, units, {"right": np.ones(2)}, samples=1)


def test_the_same_seed_gives_the_same_interval():
    units = {"right": np.random.default_rng(0).random(50)}
    first, second = (resampling.intervals(accuracy, units, samples=20, seed=3) for _ in range(2))
    assert first == second != resampling.intervals(accuracy, units, samples=20, seed=4)


def test_a_metric_that_samples_lack_has_the_interval_of_those_that_have_it():
    rare = np.array([True] + [False] * 9)
    right = np.array([1.0] + [0.0] * 9)

    def score(units):
        of_rare = {"rare": float(np.mean(units["right"][units["rare"]]))} if units["rare"].any() else {}
        return {**accuracy(units), **of_rare}

    units = {"right": right, "rare": rare}
    assert resampling.intervals(score, units, samples=50)["rare"] == (1.0, 1.0)
    worse = {"right": 1 - right, "rare": rare}
    assert resampling.differences(score, units, worse, samples=50)["rare"].value == 1.0

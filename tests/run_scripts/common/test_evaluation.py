"""What an evaluation prints of its figures."""

import types

import numpy as np

from run_scripts.common import evaluation
from xlnet_tf.tasks.metrics.resampling import Difference, Interval


def test_a_lower_loss_is_not_called_a_better_one():
    differences = {
        name: Difference(value, Interval(value - 0.02, value + 0.02), 0.01)
        for name, value in (("accuracy", 0.06), ("log_loss", -0.03))
    }
    printed = evaluation.table(evaluation.Report({}, differences, {}, [], {}), {}, "runs/a")
    title, _, accuracy, loss = printed.splitlines()
    assert title == "difference to runs/a"
    assert "+0.0600" in accuracy and "lower" not in accuracy
    assert "-0.0300  -0.0500 to -0.0100  0.0100  (lower is better)" in loss


def test_counts_have_no_intervals():
    task = types.SimpleNamespace(
        units=lambda examples, predictions: predictions,
        score_units=lambda units: {"map": float(np.mean(units["hits"])), "queries": len(units["hits"])},
        probabilities=lambda examples, predictions: None,
    )
    hits = {"hits": np.array([0.0, 1.0, 1.0])}
    found = evaluation.report(task, None, hits, {"hits": np.zeros(3)}, samples=20)
    assert set(found.intervals) == set(found.differences) == {"map"}

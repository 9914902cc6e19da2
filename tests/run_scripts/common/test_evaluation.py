"""What an evaluation prints of its figures."""

import types

import numpy as np

from run_scripts.common import evaluation
from xlnet_tf.tasks.metrics.resampling import Difference, Interval
from xlnet_tf.tasks.question_answering import metrics as squad_metrics


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
    found = evaluation.report(task, None, hits, (task, {"hits": np.zeros(3)}), samples=20)
    assert set(found.intervals) == set(found.differences) == {"map"}


def answering(threshold):
    """A task of two questions with an answer and two without, which refuses above a threshold."""
    right = np.array([100.0, 100, 0, 0])
    return types.SimpleNamespace(
        units=lambda examples, logits: {
            "exact": right,
            "f1": right,
            "has_answer": right > 0,
            "no_answer_logit": logits,
            "threshold": np.full(4, threshold),
        },
        score_units=lambda units: squad_metrics.score(units, units["threshold"]),
        probabilities=lambda examples, predictions: None,
    )


def test_each_run_refuses_by_its_own_threshold():
    low, high = np.array([-1.0, -2, 1, 2]), np.array([9.0, 8, 11, 12])
    found = evaluation.report(answering(0.0), None, low, (answering(10.0), high), samples=20)
    assert found.differences["f1"] == Difference(0.0, Interval(0.0, 0.0), 1.0)
    found = evaluation.report(answering(0.0), None, low, (answering(8.5), high), samples=20)
    assert found.differences["f1"].value == 25 and found.differences["best_f1"].value == 0


def test_alerts_of_one_run_are_not_compared():
    def task(**units):
        return types.SimpleNamespace(
            units=lambda examples, hits: {"hits": hits, **units},
            score_units=lambda each: {
                "accuracy": float(np.mean(each["hits"])),
                "alert_recall": float(np.mean(each.get("alerts", 0.0))),
            },
            probabilities=lambda examples, predictions: None,
        )

    alerts = {"alerts": np.array([True, False])}
    hits, others = np.array([1.0, 0.0]), np.array([0.0, 0.0])
    found = evaluation.report(task(**alerts), None, hits, (task(), others), samples=20)
    assert set(found.differences) == {"accuracy"} and set(found.intervals) == {"accuracy", "alert_recall"}


def test_a_metric_that_one_run_lacks_is_not_compared():
    def scores(units):
        found = units["found"]
        return {"recall": float(np.mean(found))} | ({"first": float(np.argmax(found))} if found.any() else {})

    task = types.SimpleNamespace(
        units=lambda examples, found: {"found": found},
        score_units=scores,
        probabilities=lambda examples, predictions: None,
    )
    found, nothing = np.array([False, True]), np.array([False, False])
    assert set(evaluation.report(task, None, found, (task, nothing), samples=20).differences) == {"recall"}


def test_differences_are_in_the_order_of_the_metrics():
    names = [f"mrr_at_{number}" for number in range(12)]
    task = types.SimpleNamespace(
        units=lambda examples, hits: dict.fromkeys(names, hits),
        score_units=lambda units: {name: float(np.mean(hits)) for name, hits in units.items()},
        probabilities=lambda examples, predictions: None,
    )
    found = evaluation.report(task, None, np.ones(2), (task, np.zeros(2)), samples=2)
    assert [*found.differences] == [*found.intervals] == names

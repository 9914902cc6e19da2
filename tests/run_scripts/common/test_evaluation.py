"""What an evaluation prints of its figures."""

import math
import types

import numpy as np

from run_scripts.common import evaluation, pictures
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


def a_task(units, scores):
    return types.SimpleNamespace(
        units=lambda examples, found: units(found),
        score_units=scores,
        probabilities=lambda examples, predictions: None,
    )


def compare(task, found, other, theirs, samples=20):
    return evaluation.report(task, None, found, (other, theirs), samples=samples)


def test_only_what_both_runs_have_is_compared():
    def counting(hits):
        return {"map": float(np.mean(hits["hits"])), "queries": len(hits["hits"])}

    hits, task = np.array([0.0, 1.0, 1.0]), a_task(dict, counting)
    found = compare(task, {"hits": hits}, task, {"hits": np.zeros(3)})
    assert set(found.intervals) == set(found.differences) == {"map"}  # a count has no interval

    def alerting(each):
        return {
            "accuracy": float(np.mean(each["hits"])),
            "alert_recall": float(np.mean(each.get("alerts", 0.0))),
        }

    alerts = {"alerts": np.array([True, False])}
    one, other = a_task(lambda h: {"hits": h, **alerts}, alerting), a_task(lambda h: {"hits": h}, alerting)
    found = compare(one, np.array([1.0, 0.0]), other, np.zeros(2))
    assert set(found.differences) == {"accuracy"} and set(found.intervals) == {"accuracy", "alert_recall"}

    names = [f"mrr_at_{number}" for number in range(12)]  # in the order of the metrics
    task = a_task(lambda h: dict.fromkeys(names, h), lambda u: {n: float(np.mean(h)) for n, h in u.items()})
    found = compare(task, np.ones(2), task, np.zeros(2), samples=2)
    assert [*found.differences] == [*found.intervals] == names


def answering(threshold):
    """A task of two questions with an answer and two without, which refuses above a threshold."""
    right = np.array([100.0, 100, 0, 0])
    units = {"exact": right, "f1": right, "has_answer": right > 0, "threshold": np.full(4, threshold)}
    return a_task(
        lambda logits: units | {"no_answer_logit": logits},
        lambda units: squad_metrics.score(units, units["threshold"]),
    )


def test_each_run_refuses_by_its_own_threshold():
    low, high = np.array([-1.0, -2, 1, 2]), np.array([9.0, 8, 11, 12])
    found = compare(answering(0.0), low, answering(10.0), high)
    assert found.differences["f1"] == Difference(0.0, Interval(0.0, 0.0), 1.0)
    found = compare(answering(0.0), low, answering(8.5), high)
    assert found.differences["f1"].value == 25 and found.differences["best_f1"].value == 0


def test_pictures_show_percent_only_of_shares(tmp_path):
    for name, scores, shown, unit in (
        ("shares", [0.5, 0.25, math.nan], "25.0 %", True),
        ("errors", [-1.5, -1.25, math.nan], "-1.500", False),
        ("none", [math.nan], "no score", True),
    ):
        pictures.draw_scores({"a": scores}, "metric", tmp_path / name)
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert f">{shown}</text>" in drawn and ("on test texts (%)" in drawn) == unit

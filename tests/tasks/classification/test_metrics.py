"""Metrics against values calculated manually; thresholds against all there are."""

import math

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk
from hypothesis import given
from hypothesis import strategies as st

from tfrecord_builders.classification import presets
from xlnet_tf.tasks.classification import metrics as cm

# Classes 0, 0, 0, 1, 1, 2 are predicted as 0, 0, 1, 1, 0, 2.
TARGETS = np.array([0, 0, 0, 1, 1, 2])
PROBABILITIES = np.array(
    [[0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1], [0.3, 0.6, 0.1], [0.5, 0.4, 0.1], [0.1, 0.1, 0.8]],
    np.float32,
)
# Labels 1 1 0 1 0, of which 1 1 1 0 0 are predicted: 2 hits, 1 false alarm, 1 missed, 1 rejected.
BINARY = np.array([1, 1, 0, 1, 0])
OF_ONE = np.array([0.9, 0.6, 0.7, 0.2, 0.1], np.float32)
TWO = np.stack([1 - OF_ONE, OF_ONE], axis=1)


def test_three_classes():
    values = cm.scores("classification", ["macro_f1", "accuracy", "log_loss"], TARGETS, PROBABILITIES)
    # F1 of the classes: 2*2/(3+3), 2*1/(2+2), 1.
    assert values["macro_f1"] == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert values["accuracy"] == pytest.approx(4 / 6)
    assert values["log_loss"] == pytest.approx(-np.mean(np.log([0.8, 0.5, 0.2, 0.6, 0.4, 0.8])))
    assert values[cm.SCORE] == values["macro_f1"]


def test_two_classes():
    values = cm.scores("classification", ["f1", "matthews", "auc", "average_precision"], BINARY, TWO)
    assert values["f1"] == pytest.approx(2 / 3)
    assert values["matthews"] == pytest.approx((2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2))
    # Of the 6 pairs of a positive and a negative, 0.9 and 0.6 win 3, 0.2 wins 1.
    assert values["auc"] == pytest.approx(4 / 6)
    # Precision at the positives' ranks 1, 3 and 4.
    assert values["average_precision"] == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_a_class_that_nobody_predicts_counts_as_zero():
    values = cm.scores("classification", ["macro_f1"], np.array([0, 0, 1, 2]), np.eye(3)[[0, 0, 0, 0]])
    assert values["macro_f1"] == pytest.approx((2 * 2 / 6) / 3)


def test_numbers():
    targets, outputs = np.array([0.0, 1.0, 2.0, 5.0]), np.array([1.0, 1.0, 3.0, 2.5])
    values = cm.scores("regression", ["pearson", "spearman", "rmse"], targets, outputs)
    x, y = targets - targets.mean(), outputs - outputs.mean()
    assert values["pearson"] == pytest.approx((x @ y) / math.sqrt((x @ x) * (y @ y)))
    # Ranks 1 2 3 4 and 1.5 1.5 4 3.
    a, b = np.array([1, 2, 3, 4]) - 2.5, np.array([1.5, 1.5, 4, 3]) - 2.5
    assert values["spearman"] == pytest.approx((a @ b) / math.sqrt((a @ a) * (b @ b)))
    assert values["rmse"] == pytest.approx(math.sqrt((1 + 0 + 1 + 6.25) / 4))


def test_several_labels():
    targets = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]])
    outputs = np.array([[0.9, 0.6, 0.1], [0.2, 0.8, 0.3], [0.1, 0.2, 0.4]])
    values = cm.scores("multi_label", ["micro_f1", "macro_f1", "exact_match", "auc"], targets, outputs)
    assert values["micro_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert values["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert values["exact_match"] == pytest.approx(2 / 3)
    assert values["auc"] == pytest.approx((1 + 1 + 0) / 3)


def test_one_label_that_texts_have_or_not():
    targets, outputs = np.array([[1], [0], [0], [1]]), np.array([[0.9], [0.1], [0.6], [0.2]])
    values = cm.scores("multi_label", ["micro_f1", "macro_f1"], targets, outputs)
    assert values["micro_f1"] == values["macro_f1"] == pytest.approx(2 / 4)  # rejected texts do not count


@given(st.data())
def test_as_sklearn_and_scipy(data):
    classes = data.draw(st.integers(2, 4))
    tenths = st.lists(st.integers(0, 10), min_size=classes, max_size=classes)
    rows = data.draw(st.lists(st.tuples(st.integers(0, classes - 1), tenths), min_size=2, max_size=30))
    targets, outputs = np.array([row[0] for row in rows]), np.array([row[1] for row in rows]) / 10
    decided, several = outputs.argmax(axis=1), np.arange(classes) <= targets[:, None]
    options = {"labels": range(classes), "zero_division": 0.0}
    expected = {
        "macro_f1": sk.f1_score(targets, decided, average="macro", **options),
        "matthews": sk.matthews_corrcoef(targets, decided),
    }
    if classes == 2 and 0 < targets.sum() < len(targets):
        expected["f1"] = sk.f1_score(targets, decided, zero_division=0.0)
        expected["auc"] = np.mean([sk.roc_auc_score(targets == n, outputs[:, n]) for n in range(2)])
        expected["average_precision"] = sk.average_precision_score(targets, outputs[:, 1])
    values = cm.scores("classification", list(expected), targets, outputs)
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    expected = {
        f"{average}_f1": sk.f1_score(several, outputs >= 0.5, average=average, zero_division=0.0)
        for average in ("micro", "macro")
    }
    values = cm.scores("multi_label", list(expected), several.astype(int), outputs)
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    if np.ptp(targets) and np.ptp(outputs[:, 0]):
        numbers = targets.astype(float), outputs[:, 0]
        values = cm.scores("regression", ["pearson", "spearman"], *numbers)
        assert values["pearson"] == pytest.approx(scipy.stats.pearsonr(*numbers).statistic, abs=1e-12)
        assert values["spearman"] == pytest.approx(scipy.stats.spearmanr(*numbers).statistic, abs=1e-12)


def test_undefined_metrics_are_nan_and_score_worst_unless_the_targets_are_the_reason():
    constant = cm.scores("regression", ["pearson"], np.array([1.0, 2.0]), np.array([3.0, 3.0]))
    assert math.isnan(constant["pearson"]) and constant[cm.SCORE] == -math.inf
    for kind, name, targets, outputs in (
        ("classification", "auc", np.array([1, 1]), np.array([[0.5, 0.5], [0.1, 0.9]])),
        ("regression", "spearman", np.array([2.0, 2.0]), np.array([1.0, 3.0])),
        ("multi_label", "auc", np.array([[1, 0], [1, 0]]), np.array([[0.5, 0.2], [0.6, 0.1]])),
    ):
        values = cm.scores(kind, [name], targets, outputs)
        assert math.isnan(values[name]) and math.isnan(values[cm.SCORE])
        assert cm.constant_score(kind, name, targets, 2) is None
    targets, outputs = np.array([1.0, 2.0]), np.array([1.1, 2.1])
    lost = cm.scores("regression", ["rmse"], targets, np.full(2, np.nan))[cm.SCORE]
    assert lost < cm.scores("regression", ["rmse"], targets, outputs)[cm.SCORE] < 0


def test_where_lower_is_better_the_score_is_turned():
    values = cm.scores("classification", ["log_loss", "accuracy"], BINARY, TWO)
    assert values[cm.SCORE] == -values["log_loss"] < 0


@pytest.mark.parametrize(
    ("kind", "name", "targets", "expected"),
    [
        ("classification", "accuracy", TARGETS, 0.5),
        ("classification", "matthews", TARGETS, 0),
        ("classification", "f1", BINARY, 2 * 3 / (3 + 5)),
        ("classification", "auc", BINARY, 0.5),
        ("classification", "log_loss", BINARY, 0.6 * math.log(0.6) + 0.4 * math.log(0.4)),
        ("regression", "pearson", np.array([1.0, 2.0]), 0),
        ("regression", "rmse", np.array([1.0, 3.0]), -1),
        ("multi_label", "micro_f1", np.array([[1, 0], [1, 0], [0, 1]]), 2 * 2 / (3 + 3)),
    ],
)
def test_the_best_answer_without_reading(kind, name, targets, expected):
    num_labels = targets.shape[1] if targets.ndim > 1 else int(targets.max()) + 1
    assert cm.constant_score(kind, name, targets, num_labels) == pytest.approx(expected)


def test_builders_offer_exactly_the_metrics_there_are():
    assert {kind: set(names) for kind, names in presets.METRICS.items()} == {
        kind: set(names) for kind, names in cm.METRICS.items()
    }
    for name, dataset in presets.PRESETS.items():
        assert set(dataset.metrics) <= set(cm.METRICS[dataset.kind]), name


def test_thresholds_of_alerts():
    # From 0.9 on: 1 of 3 found, nothing wrong. From 0.7: a false alarm. From 0.6: 2 of 3. From 0.2: all.
    # The threshold is half-way to the next score below: 0.7 and 0.1.
    assert cm.alert_threshold(BINARY, OF_ONE, precision=0.9) == pytest.approx((0.8, 1, 1 / 3))
    assert cm.alert_threshold(BINARY, OF_ONE, precision=0.7) == pytest.approx((0.15, 0.75, 1))
    assert cm.alert_threshold(BINARY, OF_ONE, recall=0.5) == pytest.approx((0.15, 0.75, 1))
    assert cm.alert_threshold(BINARY, OF_ONE, recall=0.3) == pytest.approx((0.8, 1, 1 / 3))
    assert cm.alert_threshold(BINARY, OF_ONE) == pytest.approx((0.15, 0.75, 1))
    assert cm.alert_threshold(np.ones(2), np.array([0.6, 0.4])) == pytest.approx(
        (0.2, 1, 1)
    )  # all are alerts
    assert all(map(math.isnan, cm.alert_threshold(np.zeros(2), np.array([0.1, 0.2]))))
    assert cm.alert_at(0.2, BINARY, OF_ONE >= 0.2) == pytest.approx((0.2, 0.75, 1))
    assert cm.alert_at(1.1, BINARY, OF_ONE >= 1.1) == pytest.approx((1.1, math.nan, 0), nan_ok=True)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=1).filter(lambda p: any(t for t, _ in p)),
    st.sampled_from([{"precision": 0.5}, {"precision": 0.9}, {"recall": 0.5}, {"recall": 0.9}]),
)
def test_no_threshold_is_better(pairs, wish):
    targets = np.array([target for target, _ in pairs])
    probabilities = np.array([number / 8 for _, number in pairs], np.float32)

    def at(threshold):
        alerts = probabilities >= threshold
        hits = np.sum(alerts & targets)
        return {"precision": hits / np.sum(alerts), "recall": hits / np.sum(targets)}

    alert = cm.alert_threshold(targets, probabilities, **wish)
    assert at(alert.threshold) == pytest.approx({"precision": alert.precision, "recall": alert.recall})
    assert alert.threshold not in set(probabilities) - {0.0}  # another route's rounding decides alike
    ((name, wanted),) = wish.items()
    other = {"precision": "recall", "recall": "precision"}[name]
    all_there_are = [at(threshold) for threshold in np.unique(probabilities)]
    reached = [point[other] for point in all_there_are if point[name] >= wanted]
    if reached:
        assert getattr(alert, name) >= wanted and getattr(alert, other) == pytest.approx(max(reached))
    else:
        assert getattr(alert, name) == pytest.approx(max(point[name] for point in all_there_are))


def test_the_report_has_every_class_and_the_confusions():
    report = cm.per_class_report("classification", ["bad", "so-so", "good"], TARGETS, PROBABILITIES)
    lines = [line.split() for line in report.splitlines()]
    assert ["bad", "0.6667", "0.6667", "0.6667", "3"] in lines
    assert ["bad", "2", "1", "0"] in lines and ["so-so", "1", "1", "0"] in lines


def test_the_report_of_a_single_label_is_about_the_label():
    targets, outputs = np.array([[1], [1], [1], [0]]), np.array([[0.9], [0.8], [0.3], [0.1]])
    lines = [
        line.split() for line in cm.per_class_report("multi_label", ["spam"], targets, outputs).splitlines()
    ]
    assert ["spam", "1.0000", "0.6667", "0.8000", "3"] in lines
    assert ["micro", "avg", "1.0000", "0.6667", "0.8000", "3"] in lines


@given(st.sampled_from([1, 3]), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_report_of_labels_agrees_with_the_metrics(count, texts, seed):
    rng = np.random.default_rng(seed)
    targets, outputs = rng.integers(0, 2, (texts, count)), rng.integers(0, 11, (texts, count)) / 10
    labels = ["a", "label of several words", "c"][:count]
    report = cm.per_class_report("multi_label", labels, targets, outputs)
    for number, label in enumerate(labels):
        column = slice(number, number + 1)
        f1 = cm.scores("multi_label", ["micro_f1"], targets[:, column], outputs[:, column])["micro_f1"]
        (row,) = (line for line in report.splitlines() if line.strip().startswith(f"{label}  "))
        assert row.split()[-2:] == [f"{f1:.4f}", str(targets[:, number].sum())]
    values = cm.scores("multi_label", ["micro_f1", "macro_f1"], targets, outputs)
    for average in ("micro", "macro"):
        (row,) = (line for line in report.splitlines() if f"{average} avg" in line)
        assert row.split()[-2] == f"{values[f'{average}_f1']:.4f}"
    if count > 1:
        assert report == sk.classification_report(
            targets, outputs >= 0.5, target_names=labels, digits=4, zero_division=0.0
        )

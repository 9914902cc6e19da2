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


@given(st.data())
def test_as_sklearn_and_scipy(data):
    classes = data.draw(st.integers(2, 4))
    tenths = st.lists(st.integers(0, 10), min_size=classes, max_size=classes)
    rows = data.draw(st.lists(st.tuples(st.integers(0, classes - 1), tenths), min_size=2, max_size=30))
    targets, outputs = np.array([row[0] for row in rows]), np.array([row[1] for row in rows]) / 10
    decided, several = outputs.argmax(axis=1), np.arange(classes) <= targets[:, None]
    options = {"labels": range(classes), "zero_division": 0.0}
    shares = (outputs + 0.1) / (outputs + 0.1).sum(axis=1, keepdims=True)
    expected = {
        "macro_f1": sk.f1_score(targets, decided, average="macro", **options),
        "matthews": sk.matthews_corrcoef(targets, decided),
        "accuracy": sk.accuracy_score(targets, decided),
    }
    if classes == 2 and 0 < targets.sum() < len(targets):
        expected["f1"] = sk.f1_score(targets, decided, zero_division=0.0)
        expected["auc"] = np.mean([sk.roc_auc_score(targets == n, outputs[:, n]) for n in range(2)])
        expected["average_precision"] = sk.average_precision_score(targets, outputs[:, 1])
    values = cm.scores("classification", list(expected), targets, outputs)
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert values[cm.SCORE] == values["macro_f1"]
    loss = cm.scores("classification", ["log_loss"], targets, shares)["log_loss"]
    assert loss == pytest.approx(sk.log_loss(targets, shares, labels=range(classes)))
    expected = {
        f"{average}_f1": sk.f1_score(several, outputs >= 0.5, average=average, zero_division=0.0)
        for average in ("micro", "macro")
    } | {"exact_match": sk.accuracy_score(several, outputs >= 0.5)}
    some = several[:, 1:], outputs[:, 1:]  # all texts have the first label
    if (some[0].any(axis=0) & ~some[0].all(axis=0)).all():
        auc = cm.scores("multi_label", ["auc"], some[0].astype(int), some[1])["auc"]
        assert auc == pytest.approx(sk.roc_auc_score(*some), abs=1e-12)
    values = cm.scores("multi_label", list(expected), several.astype(int), outputs)
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    values = cm.scores("multi_label", ["micro_f1", "macro_f1"], several[:, 1:2].astype(int), outputs[:, 1:2])
    f1 = sk.f1_score(several[:, 1], outputs[:, 1] >= 0.5, zero_division=0.0)  # rejected texts do not count
    assert values["micro_f1"] == values["macro_f1"] == pytest.approx(f1)
    values = cm.scores("regression", ["rmse"], targets.astype(float), outputs[:, 0])
    assert values["rmse"] == pytest.approx(sk.mean_squared_error(targets, outputs[:, 0]) ** 0.5)
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
    found = cm.scores("regression", ["rmse"], targets, outputs)
    assert lost < found[cm.SCORE] == -found["rmse"] < 0  # lower is better


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
    # From 0.9 on: 1 of 3 found, nothing wrong. From 0.2: all. The threshold is half-way to the next score.
    assert cm.alert_threshold(BINARY, OF_ONE, precision=0.9) == pytest.approx((0.8, 1, 1 / 3))
    assert cm.alert_threshold(BINARY, OF_ONE) == pytest.approx((0.15, 0.75, 1))
    all_of_them = cm.alert_threshold(np.ones(2), np.array([0.6, 0.4]))
    assert all_of_them == pytest.approx((0.2, 1, 1))
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

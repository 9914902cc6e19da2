"""How good predictions of classes, numbers and sets of labels are; thresholds for alerts."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from sklearn import metrics as sk

from xlnet_tf.tasks.metrics.thresholds import DECISION, threshold_between

SCORE = "score"  # the first of a set's metrics, turned so that higher is better
LOWER_IS_BETTER = ("log_loss", "rmse")
_SMALLEST = 1e-7


def scores(kind: str, names: Sequence[str], targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """Computes METRICS[kind] of a whole set, of outputs [N, C] or, for regression, [N]; the first is SCORE.

    A metric is nan where it is undefined. If a correlation is undefined only because all outputs are equal,
    SCORE is -inf; if no outputs have a metric for these targets, SCORE is nan.
    """
    values = {name: float(METRICS[kind][name](targets, outputs)) for name in names}
    first = values[names[0]]
    score = -first if names[0] in LOWER_IS_BETTER else first
    if np.isnan(score) and is_defined(kind, names[0], targets, np.shape(outputs)[-1]):
        score = -np.inf
    return {SCORE: score, **values}


def is_defined(kind: str, name: str, targets: np.ndarray, num_labels: int) -> bool:
    """Returns whether a metric is defined for these targets; correlations need targets that differ."""
    right = np.eye(num_labels)[targets] if kind == "classification" else targets
    return not np.isnan(METRICS[kind][name](targets, right))


def constant_score(kind: str, name: str, targets: np.ndarray, num_labels: int) -> float | None:
    """Returns the best SCORE of a constant answer by one of METRICS[kind]; None if it is undefined."""
    if not is_defined(kind, name, targets, num_labels):
        return None
    if kind == "regression":
        constants = [np.mean(targets)]
    elif kind == "multi_label":
        constants = [np.mean(targets, axis=0), np.ones(num_labels)]
    else:
        often = np.bincount(targets, minlength=num_labels) / len(targets)
        constants = [np.eye(num_labels)[np.argmax(often)], np.eye(num_labels)[-1], often]
    outputs = [np.broadcast_to(constant, (len(targets), *np.shape(constant))) for constant in constants]
    best = max(scores(kind, [name], targets, output)[SCORE] for output in outputs)
    return best if np.isfinite(best) else 0.0  # undefined for constants, as a correlation is


def decide(probabilities: np.ndarray) -> np.ndarray:
    """Returns the most probable classes, int [N], of probabilities [N, C]."""
    return np.argmax(probabilities, axis=-1)


def per_class_report(kind: str, labels: Sequence[str], targets: np.ndarray, outputs: np.ndarray) -> str:
    """Returns a table of precision, recall and F1 of each class, and for single labels a confusion matrix."""
    if kind == "multi_label":
        return _label_report(labels, targets, outputs)
    decided = decide(outputs)
    report = sk.classification_report(
        targets, decided, labels=range(len(labels)), target_names=labels, digits=4, zero_division=0.0
    )
    matrix = sk.confusion_matrix(targets, decided, labels=range(len(labels)))
    width = max(8, *(len(label) + 2 for label in labels))
    lines = [" " * width + "".join(f"{label:>{width}}" for label in labels) + "  <- predicted"]
    lines += [
        f"{label:>{width}}" + "".join(f"{n:>{width}}" for n in row) for label, row in zip(labels, matrix)
    ]
    return report + "\n" + "\n".join(lines)


def _label_report(labels: Sequence[str], targets: np.ndarray, probabilities: np.ndarray) -> str:
    """Returns the table of labels in sklearn's format; sklearn itself takes one label for two classes."""
    counts = _label_counts(targets, probabilities)
    true = counts[1]
    total = int(np.sum(true))
    values = _precision_recall_f1(*counts)
    shares = true / max(total, 1)
    micro = _precision_recall_f1(*(np.sum(count, keepdims=True) for count in counts))
    of_texts = _precision_recall_f1(*_label_counts(targets.T, probabilities.T))
    averages = {
        "micro avg": micro[:, 0],
        "macro avg": values.mean(axis=1),
        "weighted avg": values @ shares,
        "samples avg": of_texts.mean(axis=1),
    }
    width = max(map(len, [*labels, *averages]))

    def line(name, row, support):
        return f"{name:>{width}} " + "".join(f" {value:>9.4f}" for value in row) + f" {support:>9}"

    header = " " * (width + 1) + "".join(
        f" {name:>9}" for name in ("precision", "recall", "f1-score", "support")
    )
    rows = [line(*row) for row in zip(labels, values.T, true)]
    return "\n".join([header, "", *rows, "", *(line(name, row, total) for name, row in averages.items()), ""])


class Alert(NamedTuple):
    """A threshold on the probability of a class, with its precision and recall on the set it was found on."""

    threshold: float
    precision: float
    recall: float


def alert_threshold(
    targets: np.ndarray, probabilities: np.ndarray, precision: float = 0.0, recall: float = 0.0
) -> Alert:
    """Finds the threshold from which on a probability [N] is an alert, given which texts have the class.

    It reaches `precision` with the highest recall or, if none does, has the highest precision; or the other
    way round; with neither demand, that of the best F1. All nan if no text has the class.
    """
    if not np.any(targets):
        return Alert(np.nan, np.nan, np.nan)
    precisions, recalls, thresholds = sk.precision_recall_curve(targets, probabilities)
    precisions, recalls = precisions[:-1], recalls[:-1]  # the last point has no threshold
    if precision:
        best = _reaching(precisions, precision, recalls)
    elif recall:
        best = _reaching(recalls, recall, precisions)
    else:
        best = np.argmax(2 * precisions * recalls / np.maximum(precisions + recalls, _SMALLEST))
    threshold = threshold_between(thresholds[best], thresholds[best - 1] if best else 0.0)
    return Alert(threshold, float(precisions[best]), float(recalls[best]))


def alert_at(threshold: float, targets: np.ndarray, alerts: np.ndarray) -> Alert:
    """Returns precision and recall at a threshold, nan where undefined; targets and alerts are bool [N]."""
    hits, said, true = (int(np.sum(chosen)) for chosen in (alerts & targets, alerts, targets))
    return Alert(threshold, hits / said if said else np.nan, hits / true if true else np.nan)


def _reaching(values: np.ndarray, wanted: float, others: np.ndarray) -> int:
    """Returns the index of the largest of `others` where values reach `wanted`, else of the largest value."""
    reached = values >= wanted
    if not reached.any():
        return int(np.lexsort((others, values))[-1])
    candidates = np.flatnonzero(reached)
    return int(candidates[np.lexsort((values[candidates], others[candidates]))[-1]])


def _area_under_roc(targets: np.ndarray, values: np.ndarray) -> float:
    """Returns the share of (positive, negative) pairs in the right order; ties count half."""
    positives = int(np.sum(targets))
    ranks = scipy.stats.rankdata(values)[targets]
    return (np.sum(ranks) - positives * (positives + 1) / 2) / (positives * (len(targets) - positives))


def _mean_auc(targets: np.ndarray, probabilities: np.ndarray) -> float:
    """The mean of the classes' areas under the ROC curve, of those that some texts have and some have not."""
    areas = [
        _area_under_roc(target, probability)
        for target, probability in zip(targets.T == 1, probabilities.T)
        if 0 < np.sum(target) < len(target)
    ]
    return float(np.mean(areas)) if areas else np.nan


def _average_precision(targets: np.ndarray, probabilities: np.ndarray) -> float:
    """The mean, over the positives, of the precision from each one's probability on; 0 without positives."""
    order = np.argsort(-probabilities[:, 1], kind="stable")
    values, hits = probabilities[order, 1], np.cumsum(targets[order] == 1)
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # equal ones are said together
    if not hits[-1]:
        return 0.0
    return float(np.sum(np.diff(hits[ends], prepend=0) * hits[ends] / (ends + 1)) / hits[-1])


def _confusion(targets: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Returns the confusion matrix [C, C]: texts by true class (row) and predicted class (column)."""
    classes = probabilities.shape[1]
    pairs = np.bincount(targets * classes + decide(probabilities), minlength=classes * classes)
    return pairs.reshape(classes, classes)


def _f1_of(hits: np.ndarray, true: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Returns the F1 of counts; 0 where there is nothing to find and nothing is predicted."""
    return 2 * hits / np.maximum(true + said, 1)


def _class_f1(targets: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    matrix = _confusion(targets, probabilities)
    return _f1_of(np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0))


def _label_counts(
    targets: np.ndarray, probabilities: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns for each label how often it is predicted correctly, how often it is true and is predicted."""
    true, said = targets == 1, probabilities >= DECISION
    return np.sum(true & said, axis=0), np.sum(true, axis=0), np.sum(said, axis=0)


def _precision_recall_f1(hits: np.ndarray, true: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Returns precision, recall and F1 of counts [N]: [3, N]; 0 where a share is of nothing."""
    return np.stack([hits / np.maximum(said, 1), hits / np.maximum(true, 1), _f1_of(hits, true, said)])


def _matthews(targets: np.ndarray, probabilities: np.ndarray) -> float:
    """The correlation of classes and decisions; 0 if either are all the same. Source: Gorodkin, 2004."""
    matrix = _confusion(targets, probabilities).astype(np.float64)
    total, true, said = matrix.sum(), matrix.sum(axis=1), matrix.sum(axis=0)
    spread = (total**2 - true @ true) * (total**2 - said @ said)
    return float((np.trace(matrix) * total - true @ said) / np.sqrt(spread)) if spread else 0.0


def _log_loss(targets: np.ndarray, probabilities: np.ndarray) -> float:
    of_targets = probabilities[np.arange(len(targets)), targets]
    return -np.mean(np.log(np.clip(of_targets, _SMALLEST, 1.0)))


def _correlation(to_numbers) -> Callable[[np.ndarray, np.ndarray], float]:
    """Returns the metric that correlates `to_numbers` of the targets with `to_numbers` of the values."""

    def correlation(targets, values):
        if np.ptp(targets) == 0 or np.ptp(values) == 0:
            return np.nan
        return float(np.corrcoef(to_numbers(targets), to_numbers(values))[0, 1])

    return correlation


# kind -> name -> function of (targets, outputs). f1 and average_precision are the second of two classes'.
METRICS: Mapping[str, Mapping[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "classification": {
        "accuracy": lambda targets, outputs: np.mean(decide(outputs) == targets),
        "macro_f1": lambda targets, outputs: np.mean(_class_f1(targets, outputs)),
        "f1": lambda targets, outputs: _class_f1(targets, outputs)[1],
        "matthews": _matthews,
        "auc": lambda targets, outputs: _mean_auc(targets[:, None] == np.arange(outputs.shape[1]), outputs),
        "average_precision": _average_precision,
        "log_loss": _log_loss,
    },
    "regression": {
        "pearson": _correlation(np.asarray),
        "spearman": _correlation(scipy.stats.rankdata),
        "rmse": lambda targets, outputs: np.sqrt(np.mean(np.square(outputs - targets))),
    },
    "multi_label": {
        "micro_f1": lambda targets, outputs: _f1_of(*map(np.sum, _label_counts(targets, outputs))),
        "macro_f1": lambda targets, outputs: np.mean(_f1_of(*_label_counts(targets, outputs))),
        "exact_match": lambda targets, outputs: np.mean(np.all((outputs >= DECISION) == targets, axis=1)),
        "auc": _mean_auc,
    },
}

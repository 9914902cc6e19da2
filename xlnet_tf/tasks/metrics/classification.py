"""How good predictions of classes, numbers and sets of labels are; thresholds for alerts."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from sklearn import metrics as sk

SCORE = "score"  # the first of a set's metrics, turned so that higher is better
LOWER_IS_BETTER = ("log_loss", "rmse")
DECISION = 0.5  # of several labels, those with at least this probability are predicted
_SMALLEST = 1e-7


def scores(kind: str, names: Sequence[str], targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """Computes metrics of a whole set.

    Args:
        kind: classification, regression or multi_label.
        names: of METRICS[kind]; the first one is the set's score.
        targets: classification: numbers of the classes, int [N]; regression: float [N]; multi_label: 0 and 1,
            [N, C].
        outputs: probabilities [N, C]; regression: values [N].

    Returns:
        SCORE and each metric by name; nan where it is undefined (AUC of one class, correlation of constants),
        which is the worst SCORE.
    """
    values = {name: float(METRICS[kind][name](targets, outputs)) for name in names}
    first = values[names[0]]
    score = -first if names[0] in LOWER_IS_BETTER else first
    return {SCORE: -np.inf if np.isnan(score) else score, **values}


def constant_score(kind: str, name: str, targets: np.ndarray, num_labels: int) -> float:
    """Returns the best SCORE of an answer that is the same for all texts.

    Args:
        kind, targets: as in `scores`.
        name: of the first metric.
        num_labels: C.
    """
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
    """Returns precision, recall and F1 of each class as a table, for classification with a confusion matrix.

    Args:
        kind: classification or multi_label.
        labels: names of the C classes.
        targets, outputs: as in `scores`.
    """
    several = kind == "multi_label"
    decided = outputs >= DECISION if several else decide(outputs)
    report = sk.classification_report(
        targets, decided, labels=range(len(labels)), target_names=labels, digits=4, zero_division=0.0
    )
    if several:
        return report
    matrix = sk.confusion_matrix(targets, decided, labels=range(len(labels)))
    width = max(8, *(len(label) + 2 for label in labels))
    lines = [" " * width + "".join(f"{label:>{width}}" for label in labels) + "  <- predicted"]
    lines += [
        f"{label:>{width}}" + "".join(f"{n:>{width}}" for n in row) for label, row in zip(labels, matrix)
    ]
    return report + "\n" + "\n".join(lines)


class Alert(NamedTuple):
    """A threshold on the probability of a class, and what it gives on the set it was found on."""

    threshold: float
    precision: float
    recall: float


def alert_threshold(
    targets: np.ndarray, probabilities: np.ndarray, precision: float = 0.0, recall: float = 0.0
) -> Alert:
    """Finds the threshold from which on a probability is an alert.

    Args:
        targets: bool [N], whether a text has the class.
        probabilities: [N], of the class.
        precision: wanted at least: of such thresholds, the one with most recall. Out of reach, the one with
            most precision.
        recall: the same for recall.

    Returns:
        The threshold; without a wish, that of the best F1. All nan if no text has the class.
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
    return Alert(float(thresholds[best]), float(precisions[best]), float(recalls[best]))


def alert_at(threshold: float, targets: np.ndarray, probabilities: np.ndarray) -> Alert:
    """Returns what a threshold gives, nan for shares of no text; args as in `alert_threshold`."""
    alerts = probabilities >= threshold
    hits, said, true = (int(np.sum(chosen)) for chosen in (alerts & targets, alerts, targets))
    return Alert(threshold, hits / said if said else np.nan, hits / true if true else np.nan)


def _reaching(values: np.ndarray, wanted: float, others: np.ndarray) -> int:
    """Returns where `others` is largest among the values that reach what is wanted, or the largest value."""
    reached = values >= wanted
    if not reached.any():
        return int(np.lexsort((others, values))[-1])
    candidates = np.flatnonzero(reached)
    return int(candidates[np.lexsort((values[candidates], others[candidates]))[-1]])


def _one_hot(targets: np.ndarray, num_labels: int) -> np.ndarray:
    return np.arange(num_labels) == targets[:, None]


def _mean_auc(targets: np.ndarray, probabilities: np.ndarray) -> float:
    """The mean of the classes' areas under the ROC curve, of those that some texts have and some have not."""
    areas = [
        sk.roc_auc_score(target, probability)
        for target, probability in zip(targets.T, probabilities.T)
        if 0 < np.sum(target) < len(target)
    ]
    return np.mean(areas) if areas else np.nan


def _class_auc(targets: np.ndarray, probabilities: np.ndarray) -> float:
    return _mean_auc(_one_hot(targets, probabilities.shape[1]), probabilities)


def _f1(average: str) -> Callable[[np.ndarray, np.ndarray], float]:
    def f1(targets, probabilities):
        classes = None if average == "binary" else range(probabilities.shape[1])
        decided = decide(probabilities)
        return sk.f1_score(targets, decided, labels=classes, average=average, zero_division=0.0)

    return f1


def _labels_f1(average: str) -> Callable[[np.ndarray, np.ndarray], float]:
    def f1(targets, probabilities):
        return sk.f1_score(targets, probabilities >= DECISION, average=average, zero_division=0.0)

    return f1


def _log_loss(targets: np.ndarray, probabilities: np.ndarray) -> float:
    of_targets = probabilities[np.arange(len(targets)), targets]
    return -np.mean(np.log(np.clip(of_targets, _SMALLEST, 1.0)))


def _correlation(function) -> Callable[[np.ndarray, np.ndarray], float]:
    def correlation(targets, values):
        if np.ptp(targets) == 0 or np.ptp(values) == 0:
            return np.nan
        return function(targets, values).statistic

    return correlation


# kind -> name -> function of (targets, outputs). f1 and average_precision are the second of two classes'.
METRICS: Mapping[str, Mapping[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "classification": {
        "accuracy": lambda targets, outputs: np.mean(decide(outputs) == targets),
        "macro_f1": _f1("macro"),
        "f1": _f1("binary"),
        "matthews": lambda targets, outputs: sk.matthews_corrcoef(targets, decide(outputs)),
        "auc": _class_auc,
        "average_precision": lambda targets, outputs: sk.average_precision_score(targets, outputs[:, 1]),
        "log_loss": _log_loss,
    },
    "regression": {
        "pearson": _correlation(scipy.stats.pearsonr),
        "spearman": _correlation(scipy.stats.spearmanr),
        "rmse": lambda targets, outputs: np.sqrt(np.mean(np.square(outputs - targets))),
    },
    "multi_label": {
        "micro_f1": _labels_f1("micro"),
        "macro_f1": _labels_f1("macro"),
        "exact_match": lambda targets, outputs: np.mean(np.all((outputs >= DECISION) == targets, axis=1)),
        "auc": _mean_auc,
    },
}

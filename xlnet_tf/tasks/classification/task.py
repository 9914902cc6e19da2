"""Classification, regression and multi-label classification of texts and pairs of texts."""

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from official.modeling.hyperparams import base_config

from xlnet_tf.errors import UserError
from xlnet_tf.models import classifier
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.layout import Column
from xlnet_tf.task_registry import Sizes
from xlnet_tf.tasks import compatibility, label_losses
from xlnet_tf.tasks.classification import metrics
from xlnet_tf.tasks.classification.files import mistakes, write_files
from xlnet_tf.tasks.finetuning import FinetuningTask, register
from xlnet_tf.tasks.label_losses import BALANCED, UNIFORM, LabelConfig
from xlnet_tf.tasks.metrics.calibration import Probabilities
from xlnet_tf.tasks.model_config import SummaryModelConfig
from xlnet_tf.tasks.scoring import is_constant, row_weights
from xlnet_tf.training.task import Ratio, weighted

EXPERIMENT = "xlnet/classification"


@dataclasses.dataclass
class ClassifierModelConfig(SummaryModelConfig):
    """The network; see the flags of entry.py."""

    head_name: str = ""


@dataclasses.dataclass
class AlertConfig(base_config.Config):
    """From which probability on a class is an alert; found at each evaluation, used by predict.

    Attributes:
        label: the class; empty: no alerts.
        precision: what the threshold must reach on the dev examples, with as much recall as possible.
        recall: the same the other way round. Without either, the best F1 counts.
    """

    label: str = ""
    precision: float = 0.0
    recall: float = 0.0


@dataclasses.dataclass
class ClassificationConfig(LabelConfig):
    """Settings of classification.

    Attributes:
        sampling: "uniform": an epoch has each example once; "balanced": it has as many examples of each
            class, those of rare ones several times (see batching.py).
        alert: what an alert for texts of one class must reach.
    """

    sampling: str = UNIFORM
    model: ClassifierModelConfig = dataclasses.field(default_factory=ClassifierModelConfig)
    alert: AlertConfig = dataclasses.field(default_factory=AlertConfig)


@register(EXPERIMENT, ClassificationConfig)
class ClassificationTask(FinetuningTask):
    """Predicts a class, a number, or a set of labels, as the examples' `kind` says."""

    TASK = "classification"
    BEST_METRIC = metrics.SCORE
    SETTINGS = {
        "name": str,
        "kind": str,
        "labels": list[str],
        "metrics": list[str],
        "submissions": dict[str, str],
        "truncation": str,
        "pair": bool,
        "labelled": bool,
    }
    ANSWERED = "labelled"
    MUST_AGREE = ("kind", "labels")

    def __init__(self, params: ClassificationConfig, *args, trained_on: ExampleSet | None = None, **kwargs):
        super().__init__(params, *args, trained_on=trained_on, **kwargs)
        settings = self.example_set.settings
        self.kind, self.labels = settings["kind"], settings["labels"]
        self.task_config.check_labels(self.labels)
        if (sampling := self.task_config.sampling) not in (UNIFORM, BALANCED):
            raise UserError(f"task.sampling is {sampling!r}: expected {UNIFORM} or {BALANCED}")
        if sampling == BALANCED and self.kind != "classification":
            raise UserError(
                f"task.sampling=balanced (--sampling) needs one class for each text; the examples are for "
                f"{self.kind}: leave it out"
            )
        if sampling == self.task_config.class_weights == BALANCED and not trained_on:
            logging.warning(
                "task.sampling=balanced (--sampling) and task.class_weights=balanced (--class_weights) both "
                "make up for rare classes; together they overcorrect: leave out one of them"
            )
        alert = self.task_config.alert
        if alert.label and alert.label not in self.labels:
            raise UserError(
                f"task.alert.label is {alert.label!r}, expected one of {', '.join(self.labels) or 'no label'}"
            )
        if alert.label and not trained_on:
            dev = self.validation_set
            if dev is None or not _have(self.labels.index(alert.label), dev.column("label")).any():
                raise UserError(
                    f"task.alert finds its threshold on the dev examples with the label {alert.label!r}, "
                    "and there are none"
                )
        for name, value in (("precision", alert.precision), ("recall", alert.recall)):
            if not 0 <= value <= 1:
                raise UserError(f"task.alert.{name} (--alert_{name}) is {value}: expected 0 to 1")
            if value and not alert.label and not trained_on:
                raise UserError(f"task.alert.{name} (--alert_{name}) needs a class: give --alert_label, too")
        if alert.precision and alert.recall:
            raise UserError(
                "task.alert has both a precision and a recall: give one, the other follows from it"
            )

    def check_settings(self, examples):
        super().check_settings(examples)
        settings = examples.settings
        if (kind := settings["kind"]) not in metrics.METRICS:
            raise compatibility.wrong_setting(examples, "kind", f"one of {', '.join(metrics.METRICS)}")
        known, names = metrics.METRICS[kind], settings["metrics"]
        if not names or not set(names) <= set(known):
            raise compatibility.wrong_setting(examples, "metrics", f"some of {', '.join(known)}")
        compatibility.check_labels(examples, {"classification": 2, "multi_label": 1, "regression": 0}[kind])

    @property
    def head_name(self) -> str:
        """The task in the names of the head's variables."""
        return self.task_config.model.head_name or self.example_set.settings["name"] or "task"

    def build_head(self, encoder):
        options = {"head_name": self.head_name, **self.task_config.model.head_options()}
        if self.kind == "regression":
            return classifier.XLNetRegressor(encoder, **options)
        options |= {"labels": self.labels, "multi_label": self.kind == "multi_label"}
        return classifier.XLNetClassifier(encoder, len(self.labels), **options)

    def build_metrics(self, training: bool = True):
        return [Ratio("loss")] + ([Ratio("accuracy")] if self.kind == "classification" else [])

    def sums(self, features, outputs):
        smoothing, labels = self.task_config.label_smoothing, features["label"]
        if self.kind == "regression":
            return self._sums(features, outputs, classifier.regression_losses(outputs, labels))
        if self.kind == "multi_label":
            losses = label_losses.label_set_losses(outputs, labels, self._class_weights, smoothing)
        else:
            losses = classifier.classification_losses(outputs, labels)
            losses = label_losses.training_losses(losses, outputs, labels, self._class_weights, smoothing)
        return self._sums(features, outputs, losses)

    def validation_sums(self, features, outputs):
        of_kind = {"regression": classifier.regression_losses, "multi_label": label_losses.label_set_losses}
        losses = of_kind.get(self.kind, classifier.classification_losses)
        return self._sums(features, outputs, losses(outputs, features["label"]))

    def _sums(self, features, outputs, losses):
        values, labels = {"loss": losses}, features["label"]
        if self.kind == "classification":
            hits = tf.argmax(outputs, axis=-1, output_type=labels.dtype) == labels
            values["accuracy"] = tf.cast(hits, tf.float32)
        return weighted(row_weights(features), **values)

    @functools.cached_property
    def _class_weights(self) -> np.ndarray | None:
        config, targets = self.task_config, self.example_set.column("label")
        if self.kind == "multi_label":
            return config.label_set_weights(self.labels, targets)
        return config.weights(self.labels, np.bincount(targets, minlength=len(self.labels)))

    def sampled_classes(self):
        return self.example_set.column("label") if self.task_config.sampling == BALANCED else None

    def predictions(self, features, outputs):
        predictions = {"outputs": outputs, "label": features["label"]}
        if self.kind == "regression":
            return predictions
        to_probabilities = tf.nn.sigmoid if self.kind == "multi_label" else tf.nn.softmax
        return {**predictions, "outputs": to_probabilities(outputs), "logits": outputs}

    def probabilities(self, examples, predictions):
        if self.kind == "regression":
            return None
        labels, exclusive = predictions["label"], self.kind == "classification"
        targets = np.arange(len(self.labels)) == labels[:, None] if exclusive else labels == 1
        return Probabilities(predictions["outputs"], targets, self.labels, exclusive, predictions["logits"])

    def report(self, rows):
        metrics_of_set = super().report(rows)
        if np.isnan(metrics_of_set[self.BEST_METRIC]):
            logging.log_first_n(
                logging.WARNING,
                "%s is undefined for the dev examples, as all have one label: no evaluation counts as the "
                "best. Give dev examples with several labels, or build them with other --metrics",
                1,
                self.shown_metric,
            )
        return metrics_of_set

    def units(self, examples, predictions):
        """Adds the alerts by the run's stored threshold; in training there is none."""
        label = self.task_config.alert.label
        if not label or np.isnan(self._stored_alert):
            return predictions
        alerts = self._watched(label, predictions)[1] >= self._stored_alert
        return {**predictions, _alerts_on(label): alerts}

    def score_units(self, units):
        names = self.example_set.settings["metrics"]
        values = metrics.scores(self.kind, names, units["label"], units["outputs"])
        if label := self.task_config.alert.label:
            wish = self.task_config.alert
            targets, probabilities = self._watched(label, units)
            if _alerts_on(label) in units:
                alert = metrics.alert_at(self._stored_alert, targets, units[_alerts_on(label)])
            else:
                alert = metrics.alert_threshold(targets, probabilities, wish.precision, wish.recall)
            values |= {f"alert_{name}": value for name, value in alert._asdict().items()}
        return values

    @property
    def shown_metric(self):
        return self.example_set.settings["metrics"][0]

    def has_collapsed(self, examples, predictions):
        """Leaves out the labels, which are floats for regression."""
        return is_constant(predictions["outputs"], axis=0)

    def constant_score(self, examples):
        targets = examples.column("label")
        return metrics.constant_score(self.kind, self.shown_metric, targets, len(self.labels))

    def tables(self, examples, predictions):
        if self.kind == "regression":
            return ""
        return metrics.per_class_report(self.kind, self.labels, predictions["label"], predictions["outputs"])

    def find_mistakes(self, examples, predictions):
        return mistakes(examples, predictions["label"], predictions["outputs"])

    def write_predictions(self, examples, predictions, folder):
        alerts = None
        if label := self.task_config.alert.label:
            alerts = self._watched(label, predictions)[1] >= self.alert_threshold()
        return write_files(examples, predictions["outputs"], alerts, folder)

    @functools.cached_property
    def _stored_alert(self) -> float:
        """The threshold that the run has found, read once for all samples; nan if it has none."""
        return self.best_metrics().get("alert_threshold", np.nan)

    def alert_threshold(self) -> float:
        threshold = self.best_metrics().get("alert_threshold", np.nan)
        if np.isnan(threshold):
            raise UserError(
                f"no evaluation of this run has found from which probability of "
                f"{self.task_config.alert.label!r} on a text is an alert: wait for one, on dev examples that "
                "have texts with this label"
            )
        return threshold

    def shortfall(self, metrics):
        wish, precision = self.task_config.alert, metrics.get("alert_precision", np.nan)
        if not precision < wish.precision:
            return ""
        return (
            f"alerts on {wish.label!r} have a precision of {precision:.4f} and a recall of "
            f"{metrics['alert_recall']:.4f}, and --alert_precision asks for {wish.precision:g}"
        )

    def _watched(self, label: str, predictions) -> tuple[np.ndarray, np.ndarray]:
        """Returns which texts have a label, bool [N], and its probability for each, [N]."""
        index = self.labels.index(label)
        return _have(index, predictions["label"]), predictions["outputs"][:, index]


def _have(index: int, targets: np.ndarray) -> np.ndarray:
    """Returns which texts have a label, given those of each text, [N], or of several labels, [N, C]."""
    return targets[:, index] == 1 if targets.ndim == 2 else targets == index


def _alerts_on(label: str) -> str:
    return f"alerts on {label}"


def synthetic(sizes: Sizes) -> tuple[list[Column], dict[str, Any]]:
    """Returns the columns and settings of classified texts without content."""
    labels = [str(number) for number in range(sizes.num_labels)]
    return [Column("label", "int32", None)], _synthetic_settings("classification", labels, "accuracy")


def synthetic_regression(sizes: Sizes) -> tuple[list[Column], dict[str, Any]]:
    """Returns the columns and settings of texts with numbers, without content."""
    return [Column("label", "float32", None)], _synthetic_settings("regression", [], "rmse")


def _synthetic_settings(kind: str, labels: list[str], metric: str) -> dict[str, Any]:
    return {
        "name": "",
        "kind": kind,
        "labels": labels,
        "metrics": [metric],
        "submissions": {},
        "truncation": "end",
        "pair": False,
        "labelled": True,
    }

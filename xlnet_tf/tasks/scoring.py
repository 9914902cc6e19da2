"""What a task predicts for examples, and how the predictions for a set are scored and written."""

import abc
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from xlnet_tf.checkpoints.model_card import BEST, ModelCard
from xlnet_tf.records.batching import FILLER
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks.cutting import whole_rows
from xlnet_tf.tasks.metrics.calibration import Probabilities
from xlnet_tf.training.early_stopping import read_metrics
from xlnet_tf.training.task import Task

_CONSTANT = 1e-4  # outputs that differ by less than this come from a model that has collapsed
UNREACHED = ": no threshold reaches it on the dev examples"  # after a shortfall of these
MOST_MISTAKES = 20  # that are kept of an evaluation
Predictions = Mapping[str, np.ndarray]  # name -> [records, ...], in the order of the set


class Mistake(NamedTuple):
    """An example that a model answers wrongly, for people."""

    text: str
    expected: str
    answered: str


class ScoredTask(Task):
    """A task whose predictions for whole sets of examples are scored."""

    BEST_METRIC: ClassVar[str] = "accuracy"  # the metric of `score` that decides; higher is better
    IN_PERCENT: ClassVar[bool] = False  # whether it goes to 100 instead of 1
    ANSWERED: ClassVar[str] = ""  # the setting that says whether a set can be scored; "": all can
    TOKEN_PREDICTIONS: ClassVar[tuple[str, ...]] = ()  # with a value for each token
    POSITION_PREDICTIONS: ClassVar[tuple[str, ...]] = ()  # that are the position of a token
    example_set: ExampleSet  # says what the model is for: its labels and sizes
    validation_set: ExampleSet | None  # that is evaluated or predicted; None: there is none
    _judged: Predictions | None = None  # of the last evaluation in a training

    @property
    def shown_metric(self) -> str:
        return self.BEST_METRIC

    @classmethod
    def has_answers(cls, examples: ExampleSet) -> bool:
        return not cls.ANSWERED or examples.settings[cls.ANSWERED]

    @abc.abstractmethod
    def predictions(self, features, outputs) -> dict[str, tf.Tensor]:
        """Returns what the model says of each row, as scores and files need it: name -> [B, ...]."""

    def units(self, examples: ExampleSet, predictions: Predictions) -> Mapping[str, np.ndarray]:
        """Returns what the metrics need of each unit of a set, by default a record: [units, ...] by name."""
        return predictions

    @abc.abstractmethod
    def score_units(self, units: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the task's metrics of any of a set's units, as `units` gave them."""

    def score(self, examples: ExampleSet, predictions: Predictions) -> dict[str, float]:
        """Returns the task's metrics of a whole set; see `units`."""
        return self.score_units(self.units(examples, predictions))

    def probabilities(self, examples: ExampleSet, predictions: Predictions) -> Probabilities | None:
        """Returns the probabilities of a set with answers; None if the task does not predict any."""
        return None

    @abc.abstractmethod
    def write_predictions(self, examples: ExampleSet, predictions: Predictions, folder: str) -> list[str]:
        """Writes the predictions for a set as files for people and scorers; returns their paths."""

    def find_mistakes(self, examples: ExampleSet, predictions: Predictions) -> Iterator[Mistake]:
        """Yields what a model answers wrongly in a set with answers, the clearest first if that is known."""
        yield from ()

    def tables(self, examples: ExampleSet, predictions: Predictions) -> str:
        """Returns further tables of an evaluation, for people."""
        return ""

    def has_collapsed(self, examples: ExampleSet, predictions: Predictions) -> bool:
        """Returns whether the model gives the same outputs for every text."""
        outputs = [values for values in predictions.values() if values.dtype.kind == "f"]
        return bool(outputs) and all(is_constant(values, axis=0) for values in outputs)

    def warn_if_collapsed(self, examples: ExampleSet, predictions: Predictions):
        """Warns if the model gives all examples of a set the same outputs."""
        if examples.records > 1 and self.has_collapsed(examples, predictions):
            logging.warning(
                "the model's scores are all alike for %s: it has collapsed or not begun to learn, and its "
                "metrics are those of chance",
                examples.folder,
            )

    def shortfall(self, metrics: Mapping[str, float]) -> str:
        """Says what an evaluation lacks to meet the settings' demands of a threshold; "" if nothing."""
        return ""

    def constant_score(self, examples: ExampleSet) -> float | None:
        """Returns BEST_METRIC of the best answer that ignores the texts; None if the task has none."""
        return None

    def best_metrics(self) -> dict[str, Any]:
        """Returns the metrics of the run's best evaluation; empty if there was none.

        The set's folder is that of a finished run, or of its best weights.
        """
        folder = self.example_set.folder
        metrics = read_metrics(f"{folder}/{BEST}") or read_metrics(str(folder))
        return metrics or dict(ModelCard.read(str(folder)).thresholds)  # of weights without a run

    def dev_score(self, metrics):
        return metrics[self.BEST_METRIC]

    def evaluation_rows(self, features, outputs) -> dict[str, tf.Tensor]:
        rows = {
            "index": features["index"],
            "finite": _finite_rows(outputs),
            **self.predictions(features, outputs),
        }
        if "offset" in features:
            rows |= whole_rows(
                rows, features, self.validation_set, self.TOKEN_PREDICTIONS, self.POSITION_PREDICTIONS
            )
        return rows

    def report(self, rows: dict[str, np.ndarray]) -> dict[str, float]:
        predictions = in_order(rows, self.validation_set.records)
        if bad := without_numbers(predictions):
            logging.warning(
                "the model's outputs are NaN or infinite for %d examples of %s, first number %d: they have "
                "no scores, and these weights are not kept as the best",
                len(bad),
                self.validation_set.folder,
                bad[0],
            )
            self._judged = None
            return {self.BEST_METRIC: -np.inf}
        self.warn_if_collapsed(self.validation_set, predictions)
        self._judged = predictions
        return self.score(self.validation_set, predictions)

    def mistakes(self) -> list[Mistake]:
        """Returns what the last evaluation got wrong, found when it is asked for: only one host shows it."""
        if self._judged is None:
            return []
        try:
            found = self.find_mistakes(self.validation_set, self._judged)
            return [*itertools.islice(found, MOST_MISTAKES)]
        except Exception as error:  # of files that only the run's page needs: it is not worth a run
            logging.warning("the run's page lacks the mistakes: %s", error)
            return []


def is_constant(values: np.ndarray, axis: int) -> bool:
    """Returns whether float values differ along an axis by no more than 1e-4 of the largest."""
    return bool(np.all(np.ptp(values, axis=axis) <= _CONSTANT * (1 + np.abs(values).max(initial=0))))


def row_weights(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns 1 for rows that are examples and 0 for those that fill up a batch: [B] float32."""
    return tf.cast(features["index"] != FILLER, tf.float32)


def _finite_rows(outputs) -> tf.Tensor:
    """Returns 1 for rows of a model's outputs that are all numbers and 0 for the others: [B] int32."""
    values = [value for value in tf.nest.flatten(outputs) if value.dtype.is_floating]
    finite = [tf.reduce_all(tf.math.is_finite(v), axis=list(range(1, v.shape.rank))) for v in values]
    return tf.cast(tf.reduce_all(finite, axis=0), tf.int32)


def without_numbers(predictions: Predictions) -> list[int]:
    """Returns the examples whose outputs are NaN or infinite: their first class would be the largest."""
    return np.flatnonzero(predictions["finite"] == 0).tolist()


def in_order(rows: Mapping[str, np.ndarray], records: int) -> dict[str, np.ndarray]:
    """Sorts rows by their `index` into the order of their set and leaves out the filler rows."""
    real = rows["index"] != FILLER
    order = np.argsort(rows["index"][real])
    ordered = {name: values[real][order] for name, values in rows.items()}
    if not np.array_equal(ordered["index"], np.arange(records)):
        raise ValueError(f"predictions are of {len(order)} rows, expected each of {records} once")
    return ordered

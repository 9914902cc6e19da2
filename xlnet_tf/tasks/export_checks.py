"""Scores a run as it will be exported: what smaller weights cost, and which temperature its logits need."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from xlnet_tf import task_registry
from xlnet_tf.checkpoints import load_into
from xlnet_tf.errors import UserError
from xlnet_tf.models.reading import TOKEN_FEATURES
from xlnet_tf.serving.answers.options import FLOAT32, INT8
from xlnet_tf.serving.graph.int8 import Int8Weights
from xlnet_tf.serving.graph.weights import policy
from xlnet_tf.tasks.metrics import calibration
from xlnet_tf.tasks.prediction import Predictor, Run

_BATCH = 32
Graph = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


class Comparison(NamedTuple):
    """The metric with float32 (`full`) and with smaller weights (`small`), and the points out of 100 lost."""

    metric: str
    full: float
    small: float
    points: float


def compare_weights(
    model_dir: str, data: str, weights: str, checkpoint: str = "", graph: Graph | None = None
) -> Comparison:
    """Scores a run on examples with answers, with float32 and with other weights, perhaps of a `graph`."""
    run = _run_to_score(model_dir, data)
    task, path = run.task, run.checkpoint(checkpoint)
    predictions = _predictions(run, path, FLOAT32), _predictions(run, path, weights, graph)
    full, small = (task.score(task.validation_set, one)[task.BEST_METRIC] for one in predictions)
    scale = 1 if task.IN_PERCENT else 100
    return Comparison(task.BEST_METRIC, full, small, scale * (full - small))


def fit_temperature(model_dir: str, data: str, weights: str = FLOAT32, checkpoint: str = "") -> list[float]:
    """Finds the temperature of a run's probabilities; one for each label where a text may have several.

    `data` has examples with answers that the run was not trained on; for the others see compare_weights.
    """
    run = _run_to_score(model_dir, data)
    if run.task.validation_set.shards == run.task.example_set.shards:
        logging.warning(
            "%s has the examples that %s was trained on: it is surer of them than of new texts. Give its dev "
            "examples",
            data,
            model_dir,
        )
    predictions = _predictions(run, run.checkpoint(checkpoint), weights)
    found = run.task.probabilities(run.task.validation_set, predictions)
    if found is None or found.logits is None:
        task = task_registry.entry_for_set(run.task.validation_set).name
        raise UserError(f"{task} has no probabilities of labels to calibrate: leave out --calibrate")
    return [float(value) for value in calibration.temperatures(found)]


def _run_to_score(model_dir: str, data: str) -> Run:
    run = Run.open(model_dir, data)
    if not run.task.has_answers(run.task.validation_set):
        raise UserError(f"{data} has no answers to score by: give a set of examples that has")
    return run


def _predictions(run: Run, path: str, weights: str, graph: Graph | None = None) -> dict[str, np.ndarray]:
    with policy(FLOAT32 if graph else weights):
        kind = Predictor if graph is None else functools.partial(_GraphPredictor, graph)
        predictor = kind(run, tf.distribute.get_strategy(), _BATCH)
    load_into(predictor.model, path)
    in_integers = weights == INT8 and graph is None
    with Int8Weights(predictor.model).in_place() if in_integers else contextlib.nullcontext():
        return predictor.predict(path)


class _GraphPredictor(Predictor):
    """Computes predictions with another runtime's graph instead of the model."""

    def __init__(self, graph: Graph, run: Run, *args):
        super().__init__(run, *args)
        self._graph, self._sequences = graph, run.task.validation_set.sequences

    def forward(self, features):
        outputs = super().forward(features)  # their names, types and shapes: nothing of it is computed
        like = outputs if isinstance(outputs, Mapping) else {"": outputs}

        def compute(*arrays):
            found = self._graph(dict(zip(TOKEN_FEATURES, arrays)))
            [main] = {"logits", "value"} & found.keys() or [None]
            return [found[name or main].astype(value.dtype.as_numpy_dtype) for name, value in like.items()]

        ids = features["input_word_ids"]
        rows = [ids.shape[0] or tf.shape(ids)[0], self._sequences]  # candidates are rows of their own
        tokens = [tf.reshape(features[name], [rows[0] * rows[1], -1]) for name in TOKEN_FEATURES]
        arrays = tf.numpy_function(compute, tokens, [value.dtype for value in like.values()])
        found = {}
        for (name, value), array in zip(like.items(), arrays):
            found[name] = tf.reshape(array, rows) if self._sequences > 1 else array
            found[name].set_shape(value.shape)
        return found if isinstance(outputs, Mapping) else found[""]

"""Answers batches of rows with a graph function: the TensorFlow side of serving/answers/text_answers.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xlnet_tf.errors import UserError, reason
from xlnet_tf.serving.answers.signatures import TensorInfo
from xlnet_tf.serving.answers.text_answers import Row, split_rows


class GraphPredictor(NamedTuple):
    """Answers a batch of rows with a graph function."""

    serve: Any
    inputs: Callable[[Sequence[Row]], dict[str, Any]]  # converts rows to the function's inputs by name
    without_padding: Callable[[Row, dict[str, Any]], dict[str, Any]]  # see ExportableModel

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        try:
            answers = {name: values.numpy() for name, values in self.serve(**self.inputs(rows)).items()}
        except tf.errors.InvalidArgumentError as error:  # such as a question without options
            raise UserError(f"the model refuses a row: {reason(error)}") from error
        return [*map(self.without_padding, rows, split_rows(answers))]

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        return {
            name: TensorInfo(np.dtype(spec.dtype.as_numpy_dtype), spec.shape.rank)
            for name, spec in sorted(self.serve.structured_outputs.items())
        }


def batch_predictor(
    answer: Callable[..., Any],
    specs: Mapping[str, tf.TensorSpec],
    without_padding: Callable[[Row, dict[str, Any]], dict[str, Any]],
) -> GraphPredictor:
    """Returns the function that answers a batch of rows: a graph, unless tf.functions run eagerly."""
    columns = {name: _spec(spec) for name, spec in specs.items()}
    serve = answer
    if not tf.config.functions_run_eagerly():
        serve = tf.function(answer, autograph=False).get_concrete_function(**columns)

    def inputs(rows: Sequence[Row]) -> dict[str, Any]:
        tensors = {}
        for name, spec in columns.items():
            values = [row[name] for row in rows]
            is_text = isinstance(spec, tf.TensorSpec)
            tensors[name] = tf.constant(values) if is_text else tf.ragged.constant(values, spec.dtype, 1)
        return tensors

    return GraphPredictor(serve, inputs, without_padding)


def _spec(spec: tf.TensorSpec) -> tf.TensorSpec | tf.RaggedTensorSpec:
    """Returns an input's spec, ragged if rows have lists of texts."""
    return tf.RaggedTensorSpec(spec.shape, spec.dtype, 1, tf.int64) if spec.shape.rank > 1 else spec

"""Functions of a model as graphs, each traced once for all shapes."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from xlnet_tf.generation.layout import AT_ONCE


class Graphs:
    """Runs functions of a model: graph(function, *inputs, **static) is function(model, *inputs, **static)."""

    def __init__(self, model: tf.Module):
        self._model = model
        self._graphs: dict[Any, Callable] = {}

    def __call__(self, function: Callable, *inputs, **static):
        """Returns a function's results as arrays; for long texts there is a graph that reads in blocks.

        The first of the inputs are the ids [B, T].
        """
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        static["in_blocks"] = inputs[0].shape[1] > AT_ONCE
        key = (function, *static.items())
        if key not in self._graphs:
            specs = tf.nest.map_structure(
                lambda value: tf.TensorSpec([None] * value.shape.rank, value.dtype), inputs
            )
            self._graphs[key] = tf.function(
                lambda *inputs: function(self._model, *inputs, **static), specs, autograph=False
            )
        return tf.nest.map_structure(lambda value: value.numpy(), self._graphs[key](*inputs))

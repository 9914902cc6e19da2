"""Losses of a pretrained model on a paragraph, as in pretraining: a sixth of the tokens are its targets.

Each token is a target once: the paragraph is read six times, each time with other spans as targets, which are
predicted in a factorization order from the rest of the paragraph and from those before them in the order.
Shapes: R readings, T tokens.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from xlnet_tf.checkpoints import names
from xlnet_tf.generation.scoring import order_ranks, token_log_probabilities
from xlnet_tf.models.pretrainer import XLNetPretrainer

READINGS = 6  # 1 / (part of the tokens that are targets), as the released models were trained
_SPAN = 3  # tokens of a span
_SEED = 5


class ParagraphLosses:
    """What a model makes of a paragraph.

    Args:
        model: a pretrained model, built.
        ids: [T], the paragraph's pieces.

    Attributes:
        variables: those of the model by their names in checkpoints.
    """

    def __init__(self, model: XLNetPretrainer, ids: np.ndarray):
        self.model = model
        self.variables: Mapping[str, tf.Variable] = {names.canonical(v.name): v for v in model.variables}
        self._ids = np.tile(np.asarray(ids, np.int32), (READINGS, 1))
        self._is_target = np.arange(len(ids)) // _SPAN % READINGS == np.arange(READINGS)[:, None]
        self._loss = tf.function(self._compute, autograph=False)  # one graph for all orders and contexts

    def of_order(self, order: str = "random") -> float:
        """Returns the mean loss of the tokens, in nats, in a factorization order of scoring.ORDERS."""
        return float(self._loss(*self._inputs(self._ids, order=order)))

    def without_context(self) -> float:
        """Returns the mean loss of targets that are predicted from those before them in the order alone."""
        return float(self._loss(*self._inputs(self._ids, self._is_target)))

    def with_shuffled_context(self) -> float:
        """Returns the mean loss of targets whose context has its tokens in another order."""
        ids, random = self._ids.copy(), np.random.default_rng(_SEED)
        for row, is_target in zip(ids, self._is_target):
            row[~is_target] = random.permutation(row[~is_target])
        return float(self._loss(*self._inputs(ids)))

    def with_activation(self, activation: str) -> float:
        """Returns the mean loss in a random order with another of config.ACTIVATIONS."""
        layers = [block.feed_forward for block in self.model.encoder.blocks]
        config = layers[0].config
        try:
            for layer in layers:
                layer.config = dataclasses.replace(config, ff_activation=activation)
            return float(self._compute(*self._inputs(self._ids)))
        finally:
            for layer in layers:
                layer.config = config

    def gradients(self, variables: Iterable[str]) -> tuple[float, dict[str, np.ndarray]]:
        """Returns the mean loss in a random order, and its gradient by the names of variables.

        A gradient needs the activations of all layers, so there is one pass for each reading.
        """
        chosen = {name: self.variables[name] for name in variables}

        def compute(*inputs):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(chosen.values())
                loss = self._compute(*inputs)
            return loss, tape.gradient(loss, chosen, unconnected_gradients="zero")

        graph = tf.function(compute, autograph=False)
        total, sums = 0.0, {name: np.zeros(variable.shape, np.float32) for name, variable in chosen.items()}
        for reading in zip(*self._inputs(self._ids)):
            loss, found = graph(*(values[None] for values in reading))
            for name, value in found.items():
                sums[name] += value
            total += float(loss)
        return total, sums

    def _inputs(self, ids: np.ndarray, mask: np.ndarray | None = None, order: str = "random"):
        """Returns what `_compute` takes, [R, T] each."""
        ranks = order_ranks(self._is_target, order, tf.fill([READINGS], tf.constant(_SEED, tf.int64)))
        mask = np.ones_like(ids) if mask is None else mask.astype(np.int32)
        return tf.constant(ids), tf.constant(mask), tf.constant(self._is_target), ranks

    def _compute(self, ids: tf.Tensor, mask: tf.Tensor, is_target: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
        """Returns what readings add to the mean loss of all."""
        features = {"input_word_ids": ids, "input_mask": mask}
        found = token_log_probabilities(self.model, features, is_target, ranks)
        return -tf.reduce_sum(found) / np.count_nonzero(self._is_target)

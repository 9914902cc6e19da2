"""Losses of a pretrained model on a paragraph, as in pretraining: a sixth of the tokens are its targets.

Each token is a target once: the paragraph is read six times, each time with other spans as targets, which are
predicted in a factorization order from the rest of the paragraph and from those before them in the order.
Shapes: R readings, T tokens.
"""

import dataclasses
from collections.abc import Mapping

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

    def of_order(self, order: str = "random") -> float:
        """Returns the mean loss of the tokens, in nats, in a factorization order of scoring.ORDERS."""
        return float(self._loss(self._ids, np.ones_like(self._ids), order))

    def without_context(self) -> float:
        """Returns the mean loss of targets that are predicted from those before them in the order alone."""
        return float(self._loss(self._ids, self._is_target.astype(np.int32)))

    def with_shuffled_context(self) -> float:
        """Returns the mean loss of targets whose context has its tokens in another order."""
        ids, random = self._ids.copy(), np.random.default_rng(_SEED)
        for row, is_target in zip(ids, self._is_target):
            row[~is_target] = random.permutation(row[~is_target])
        return float(self._loss(ids, np.ones_like(ids)))

    def with_activation(self, activation: str) -> float:
        """Returns the mean loss in a random order with another of config.ACTIVATIONS."""
        layers = [block.feed_forward for block in self.model.encoder.blocks]
        config = layers[0].config
        try:
            for layer in layers:
                layer.config = dataclasses.replace(config, ff_activation=activation)
            return self.of_order()
        finally:
            for layer in layers:
                layer.config = config

    def gradients(self) -> tuple[float, dict[str, np.ndarray]]:
        """Returns the mean loss in a random order, and its gradient by the variables' names."""
        with tf.GradientTape() as tape:
            loss = self._loss(self._ids, np.ones_like(self._ids))
        found = tape.gradient(loss, dict(self.variables), unconnected_gradients="zero")
        return float(loss), {name: tf.convert_to_tensor(value).numpy() for name, value in found.items()}

    def _loss(self, ids: np.ndarray, mask: np.ndarray, order: str = "random") -> tf.Tensor:
        is_target = tf.constant(self._is_target)
        ranks = order_ranks(is_target, order, tf.fill([READINGS], tf.constant(_SEED, tf.int64)))
        features = {"input_word_ids": tf.constant(ids), "input_mask": tf.constant(mask)}
        found = token_log_probabilities(self.model, features, is_target, ranks)
        return -tf.reduce_sum(found) / np.count_nonzero(self._is_target)

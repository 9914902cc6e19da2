"""Seeds of dropout: each use in the network derives its own from one seed of the step."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def step_seed(features: Mapping[str, Any], training: bool | None) -> tf.Tensor | None:
    """Returns the seed that all dropout of a step is derived from.

    Args:
        features: `dropout_seed` [2] int32 among them, or else the seed is drawn.
        training: whether there is dropout at all.
    """
    if not training:
        return None
    if "dropout_seed" in features:
        return tf.convert_to_tensor(features["dropout_seed"])
    return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)


def fold_in(seed: tf.Tensor | None, index: int) -> tf.Tensor | None:
    """Derives the seed of one use.

    Args:
        seed: [2] int32, the step's or a layer's seed; None means no dropout.
        index: different for all uses that share `seed`.
    """
    if seed is None:
        return None
    # The multiplier keeps the uses of one layer apart from those of the next (fold_in of fold_in).
    return seed * [1, 101] + [0, index]

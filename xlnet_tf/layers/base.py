"""What all layers share: the architecture, the initializer and the normalization."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from xlnet_tf.config import XLNetConfig

LAYER_NORM_EPSILON = 1e-12


def normal(stddev: float) -> tf_keras.initializers.Initializer:
    """Returns a fresh normal initializer; one object used twice would give both weights equal values."""
    return tf_keras.initializers.RandomNormal(stddev=stddev)


def layer_norm(name: str) -> tf_keras.layers.LayerNormalization:
    """Returns a normalization that computes in float32 under any policy."""
    return tf_keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=tf.float32, name=name)


@contextlib.contextmanager
def policy_restored() -> Iterator[None]:
    """Undoes, at the end of the block, what it does to Keras' policy."""
    before = tf_keras.mixed_precision.global_policy()
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


class ConfiguredLayer(tf_keras.layers.Layer):
    """A layer of the architecture.

    Args:
        config: the architecture.
        initializer_range: standard deviation of the weights' normal initializer.
    """

    def __init__(self, config: XLNetConfig, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.initializer_range = initializer_range

    def add_normal_weight(self, name: str, shape: list[int], **options) -> tf.Variable:
        """Adds a weight with the layer's initializer."""
        return self.add_weight(name, shape, initializer=normal(self.initializer_range), **options)

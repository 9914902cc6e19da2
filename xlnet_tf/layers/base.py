"""What all layers share: the architecture, initializer, normalization, and seeds of dropout.

Each use of dropout in the network derives its own seed from one seed of the step.
"""

import contextlib
import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf.config import XLNetConfig

LAYER_NORM_EPSILON = 1e-12


class DropoutSeed(enum.IntEnum):
    """The uses of dropout that derive their seed from the step's, next to the layers (0 to L - 1)."""

    CONTENT_OUTPUT = -1
    QUERY_OUTPUT = -2
    POSITION_SINE = -3
    POSITION_COSINE = -4
    CONTENT_INPUT = -5
    QUERY_INPUT = -6
    HEAD = -7


def normal(stddev: float) -> tf_keras.initializers.Initializer:
    """Returns a fresh normal initializer; one object used twice would give both weights equal values."""
    return tf_keras.initializers.RandomNormal(stddev=stddev)


def layer_norm(name: str) -> tf_keras.layers.LayerNormalization:
    """Returns a normalization that computes in float32 under any policy."""
    return tf_keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=tf.float32, name=name)


class NormWeights(NamedTuple):
    """Scale and shift of a normalization, [D] float32."""

    gamma: tf.Tensor
    beta: tf.Tensor


def step_seed(features: Mapping[str, Any], training: bool | None) -> tf.Tensor | None:
    """Returns the seed of a step's dropout: features' `dropout_seed` [2] int32, or one that is drawn."""
    if not training:
        return None
    if "dropout_seed" in features:
        return tf.convert_to_tensor(features["dropout_seed"])
    return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)


def fold_in(seed: tf.Tensor | None, index: int) -> tf.Tensor | None:
    """Derives the seed [2] int32 of one use, whose index no other use of `seed` has; None: no dropout."""
    if seed is None:
        return None
    # The multiplier keeps the uses of one layer apart from those of the next (fold_in of fold_in).
    return seed * [1, 101] + [0, index]


@contextlib.contextmanager
def policy_restored() -> Iterator[None]:
    """Restores Keras' policy at the end of the block."""
    before = tf_keras.mixed_precision.global_policy()
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


class ConfiguredLayer(tf_keras.layers.Layer):
    """A layer of the architecture, whose weights begin normal with the deviation initializer_range."""

    #: Further arguments of the class, kept as attributes of the same names, for get_config.
    OPTIONS: tuple[str, ...] = ()

    def __init__(self, config: XLNetConfig, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.initializer_range = initializer_range

    def add_normal_weight(self, name: str, shape: list[int], **options) -> tf.Variable:
        """Adds a weight with the layer's initializer."""
        return self.add_weight(name, shape, initializer=normal(self.initializer_range), **options)

    def get_config(self):
        own = {name: getattr(self, name) for name in ("initializer_range", *self.OPTIONS)}
        return {**super().get_config(), "config": self.config.to_dict(), **own}

    @classmethod
    def from_config(cls, config) -> Self:
        config = dict(config)
        return cls(XLNetConfig.from_dict(config.pop("config")), **config)

"""Dropout as a function of a seed, so that a training step is a function of its inputs alone.

Keras' dropout draws from hidden state that no checkpoint holds: a resumed run would differ from an
undisturbed one. Here every place of the network derives its mask from one seed of the step.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xlnet_tf.layers import fused, hardware


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


def seed_at(seed: tf.Tensor | None, place: int) -> tf.Tensor | None:
    """Returns the seed of one place in the network.

    Args:
        seed: [2] int32, the step's or a layer's seed; None means no dropout.
        place: index of the place, different for all that share `seed`.
    """
    if seed is None:
        return None
    # The multiplier keeps the places of one layer apart from those of the next (seed_at of seed_at).
    return seed * [1, 101] + [0, place]


def kept(shape, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Draws which elements of a shape dropout keeps: bool, false with probability `rate`.

    Drawing random bits is what dropout costs. On a TPU an element gets 16, which meet `rate` to 1 / 2**17.
    Elsewhere it gets 8, and what they are compared with is one of the two multiples of 1/256 that `rate` lies
    between: which of them is drawn for all elements of a call together, so that each one's probability is
    `rate`, to 1 / 2**32. Graphs for CPUs draw other numbers from a seed than what runs without a graph.
    """
    known = tf.get_static_value(shape)
    shape = shape if known is None else [int(size) for size in known]  # numbers need no operations
    if hardware.kind() == "tpu":  # where numbers lie in tiles, and moving them inside of one is slow
        *rows, width = tf.unstack(shape) if known is None else shape
        words = _words([*rows, (width + 1) // 2], seed)
        low = tf.bitwise.bitwise_and(words, tf.constant(2**16 - 1, tf.uint32))
        high = tf.bitwise.right_shift(words, tf.constant(16, tf.uint32))
        bound = tf.constant(round(rate * 2**16), tf.uint32)
        return tf.concat([low >= bound, high >= bound], axis=-1)[..., :width]
    # Of a negative seed XLA and TensorFlow draw different numbers.
    seed = tf.bitwise.bitwise_and(seed, tf.constant(2**31 - 1, seed.dtype))
    size = tf.reduce_prod(shape) if known is None else math.prod(shape)
    count = (size + 3) // 4
    words = (_by_three_fry if fused.pays() else _by_philox)(count + 1, seed)
    lower = int(rate * 2**8)
    odds = min(round((rate * 2**8 - lower) * 2**32), 2**32 - 1)  # of the upper one
    bound = lower + tf.cast(words[count] < tf.constant(odds, tf.uint32), tf.int32)  # 0 to 256
    parts = tf.bitcast(words[:count], tf.uint8)  # [count, 4]
    if known is None or size % 4:
        parts = tf.reshape(parts, [-1])[:size]
    parts = tf.reshape(parts, shape)
    # Either way the bound fits in 8 bits.
    return parts > tf.cast(bound - 1, tf.uint8) if lower else parts >= tf.cast(bound, tf.uint8)


def _by_philox(count, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform([count], seed, minval=None, maxval=None, dtype=tf.uint32)


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _by_three_fry(count, seed: tf.Tensor) -> tf.Tensor:
    """Draws by XLA's ThreeFry: on a CPU in less than half of the time of TensorFlow's Philox."""
    return tf.random.stateless_uniform(
        [count], seed, minval=None, maxval=None, dtype=tf.uint32, alg="threefry"
    )


def _words(shape, seed: tf.Tensor) -> tf.Tensor:
    """Draws 32 random bits an element: uint32, on a TPU the same as tf.random.stateless_uniform.

    A TPU's generator takes the seed as it is. That is not left to TensorFlow, which would compute a key of it
    where it lowers for a TPU on another machine, in half of a step's operations.
    """
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape,
        key=tf.bitcast(tf.cast(seed, tf.int32), tf.uint64)[None],
        counter=tf.zeros([2], tf.uint64),
        alg=tf.random.Algorithm.AUTO_SELECT.value,
        dtype=tf.uint32,
    )


def drop(x: tf.Tensor, is_kept: tf.Tensor, rate: float) -> tf.Tensor:
    """Zeroes what is not kept, and scales the rest by 1 / (1 - rate)."""
    scale = tf.cast(1 / (1 - rate), x.dtype)
    if hardware.kind() == "tpu":  # so that a byte, not a number, is kept for the gradient
        return tf.where(is_kept, x * scale, tf.zeros([], x.dtype))
    # A product takes less of a CPU's time than a choice, and its gradient is one product.
    return x * (tf.cast(is_kept, x.dtype) * scale)


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
        x: any shape.
        rate: probability in [0, 1).
        seed: [2] int32, or None outside training.
    """
    if seed is None or not rate:
        return x
    return drop(x, kept(tf.shape(x), rate, seed), rate)

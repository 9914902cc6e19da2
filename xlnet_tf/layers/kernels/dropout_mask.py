"""Random bits for dropout, whose cost is drawing them.

Every mask is a function of a seed, so that a training step is a function of its inputs alone: Keras' dropout
draws from hidden state that no checkpoint holds. Kernels draw different masks from the same seed.
"""

import functools
import math
from collections.abc import Callable

import tensorflow as tf

_FAR = 1 << 62  # a counter of random words that no mask reaches


def keep_mask_8_bits(shape, rate: float, seed: tf.Tensor, draw: Callable) -> tf.Tensor:
    """Draws what dropout keeps, bool, from 8 random bits an element; false with probability `rate`.

    The bits are compared with one of the two multiples of 1/256 that `rate` lies between. Which of them is
    drawn for all elements of a call together, so that each element's probability is `rate`, to 1 / 2**32.
    """
    shape, is_static = _static(shape)
    size = math.prod(shape) if is_static else tf.reduce_prod(shape)
    if tf.executing_eagerly():
        size = tf.convert_to_tensor(size)  # the function would be traced anew for each integer
    return tf.reshape(_keep_8_bits(size, seed, float(rate), draw), shape)


@functools.partial(tf.function, autograph=False)
def _keep_8_bits(size, seed: tf.Tensor, rate: float, draw: Callable) -> tf.Tensor:
    """Draws the mask of `size` elements: bool [size].

    A function, so that a model's dropouts are not all traced: tensors as sizes share one trace, and equal
    integers do.
    """
    # XLA and TensorFlow draw different numbers from a negative seed.
    seed = tf.bitwise.bitwise_and(seed, tf.constant(2**31 - 1, seed.dtype))
    count = (size + 3) // 4
    words = draw(count + 1, seed)
    bound = _bound(rate, words[count])
    numbers = tf.reshape(tf.bitcast(words[:count], tf.uint8), [-1])
    if tf.is_tensor(size) or size % 4:
        numbers = numbers[:size]
    # Either way the bound fits in 8 bits.
    return numbers > tf.cast(bound - 1, tf.uint8) if int(rate * 2**8) else numbers >= tf.cast(bound, tf.uint8)


def philox_words(count, seed: tf.Tensor) -> tf.Tensor:
    """Draws [count] uint32 by TensorFlow's Philox."""
    return tf.random.stateless_uniform([count], seed, minval=None, maxval=None, dtype=tf.uint32)


def threefry_words(count, seed: tf.Tensor) -> tf.Tensor:
    """Draws [count] uint32 by XLA's ThreeFry: on a CPU in less than half of Philox' time.

    XLA compiles for each count, and rows of any length have many. So up to a half more are drawn, and counts
    share the programs for 2, 3, 4, 6, 8, 12, 16, ... words.
    """
    if tf.is_tensor(count):
        octave = tf.math.floor(tf.math.log(tf.cast(count, tf.float64)) / math.log(2))
        step = tf.cast(tf.math.round(2 ** tf.maximum(octave - 1, 0)), count.dtype)
    else:
        step = 1 << max(count.bit_length() - 2, 0)
    return _threefry(-(-count // step) * step, seed)[:count]


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _threefry(count, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform(
        [count], seed, minval=None, maxval=None, dtype=tf.uint32, alg="threefry"
    )


def keep_mask_of_tpu(shape, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Draws what dropout keeps on a TPU, as `keep_mask_8_bits` does, with the TPU's own generator.

    The four numbers of a word are for four quarters of the last axis but one: a TPU's numbers lie in tiles of
    two axes, and moving them inside of one is slow. For scores [B, N, Q, K] the queries are drawn as the last
    axis, as XLA lays scores out; it would copy all words otherwise.
    """
    shape, is_static = _static(shape)
    shape = shape if is_static else tf.unstack(shape)
    if len(shape) == 4:
        batch, heads, queries, keys = shape
        return tf.transpose(_keep_by_quarters([batch, heads, keys, queries], rate, seed), [0, 1, 3, 2])
    return _keep_by_quarters(shape, rate, seed)


def _keep_by_quarters(shape, rate: float, seed: tf.Tensor) -> tf.Tensor:
    axis = max(len(shape) - 2, 0)
    words = _tpu_words([*shape[:axis], (shape[axis] + 3) // 4, *shape[axis + 1 :]], seed)
    bound = tf.cast(_bound(rate, _tpu_words([], seed, _FAR)), tf.uint32)
    shifts = [tf.constant(shift, tf.uint32) for shift in (0, 8, 16, 24)]
    numbers = [tf.bitwise.right_shift(words, shift) & tf.constant(255, tf.uint32) for shift in shifts]
    keep = tf.concat([quarter >= bound for quarter in numbers], axis)
    return tf.slice(keep, [0] * len(shape), shape)


def _bound(rate: float, word: tf.Tensor) -> tf.Tensor:
    """Returns the number, of 0 to 256, below which 8 random bits are dropped; a random word chooses it."""
    lower = int(rate * 2**8)
    odds = min(round((rate * 2**8 - lower) * 2**32), 2**32 - 1)  # odds of the upper multiple
    return lower + tf.cast(word < tf.constant(odds, tf.uint32), tf.int32)


def _tpu_words(shape, seed: tf.Tensor, counter: int = 0) -> tf.Tensor:
    """Draws 32 random bits an element: uint32, on a TPU the same as tf.random.stateless_uniform.

    A TPU's generator takes the seed as it is. TensorFlow would compute a key from it where it lowers for a
    TPU on another machine, in half of a step's operations.
    """
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape,
        key=tf.bitcast(tf.cast(seed, tf.int32), tf.uint64)[None],
        counter=tf.constant([counter, 0], tf.uint64),
        alg=tf.random.Algorithm.AUTO_SELECT.value,
        dtype=tf.uint32,
    )


def _static(shape) -> tuple:
    """Returns a shape as integers, which need no operations, and True; or as it is, and False."""
    known = tf.get_static_value(shape)
    return (shape, False) if known is None else ([int(size) for size in known], True)

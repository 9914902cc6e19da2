"""Random numbers that depend on integers alone: no state, the same in every process and layout."""

import tensorflow as tf

_GAMMA = 0x9E3779B97F4A7C15


def hashed(value: tf.Tensor) -> tf.Tensor:
    """Returns SplitMix64's finaliser of each value, uint64 -> uint64."""
    value = value + tf.constant(_GAMMA, tf.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ tf.bitwise.right_shift(value, tf.constant(shift, tf.uint64))) * tf.constant(
            factor, tf.uint64
        )
    return value ^ tf.bitwise.right_shift(value, tf.constant(31, tf.uint64))


def hashed_all(*values: tf.Tensor) -> tf.Tensor:
    """Returns one uint64 hash of several integers, in their order; they broadcast."""
    key = tf.zeros([], tf.uint64)
    for value in values:
        key = hashed(key ^ tf.cast(value, tf.uint64))
    return key


def stream(keys: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Returns the first numbers of SplitMix64 seeded with each key: uint64 [B] -> uint64 [B, count]."""
    counters = tf.range(count, dtype=tf.int64) * tf.constant(_GAMMA - (1 << 64), tf.int64)
    return hashed(keys[:, None] + tf.cast(counters, tf.uint64))


def random_bits(keys: tf.Tensor, count: int, bits: int) -> tf.Tensor:
    """Draws numbers for each key: int32 [B, count], 0 to 2^bits - 1; `bits` is 1 to 31."""
    pairs = -(-count // 2)
    draws = tf.bitcast(stream(keys, pairs), tf.uint32)  # [B, pairs, 2]
    draws = tf.bitwise.right_shift(draws, tf.constant(32 - bits, tf.uint32))
    return tf.cast(tf.reshape(draws, [-1, 2 * pairs])[:, :count], tf.int32)

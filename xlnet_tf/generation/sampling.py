"""Chooses pieces by their probabilities: the likeliest, or drawn, from all or from the likely ones.

Each row has settings of its own, and its choice depends on nothing but that row.

Shapes: B rows, G tokens to write, V vocabulary.
"""

import tensorflow as tf

from xlnet_tf.generation.cached_layer import shape_of
from xlnet_tf.generation.settings import Sampling, WritingRules
from xlnet_tf.records.splitmix64 import stream
from xlnet_tf.text.special_tokens import EOP_ID

_BITS_OF_ONE = 0x3F800000  # the bits of 1.0 as float32


def uniform_draws(seeds: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Draws [B, G] float32 from [0, 1): equal seeds give equal numbers on every device and compiler.

    Source: SplitMix64 (Steele, Lea and Flood, 2014).
    """
    bits = stream(tf.cast(seeds, tf.uint64), count)
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(40, tf.uint64)), tf.float32) / 2**24


def log_probabilities(logits: tf.Tensor) -> tf.Tensor:
    """Normalizes logits [..., V] over the pieces that texts are made of: no symbols but `<eop>`."""
    is_symbol = tf.range(logits.shape[-1]) < EOP_ID
    return tf.nn.log_softmax(tf.where(is_symbol, float("-inf"), logits))


def apply_rules(log_probs: tf.Tensor, texts: tf.Tensor, rules: WritingRules) -> tf.Tensor:
    """Normalizes log_probs [B, C, V] anew, once the rules are kept; texts [B, C, T] are PAD where empty.

    Source of the penalty: CTRL (Keskar et al., 2019), section 4.1, there of logits, whose zero is arbitrary.
    """
    batch, candidates, pieces = shape_of(log_probs)

    def apply():
        ids = tf.reshape(texts, [batch * candidates, -1])
        rows = tf.tile(tf.range(batch * candidates)[:, None], [1, tf.shape(ids)[1]])
        penalties = tf.fill(tf.shape(ids), rules.repetition_penalty)
        ones = tf.ones([batch * candidates, pieces])
        factors = tf.tensor_scatter_nd_update(ones, tf.stack([rows, ids], axis=2), penalties)
        is_forbidden = tf.reduce_any(tf.range(pieces)[:, None] == rules.forbidden, axis=1)
        penalized = log_probs * tf.reshape(factors, tf.shape(log_probs))
        return tf.nn.log_softmax(tf.where(is_forbidden, float("-inf"), penalized))

    is_used = (tf.size(rules.forbidden) > 0) | (rules.repetition_penalty != 1)
    return tf.cond(is_used, apply, lambda: log_probs)


def choose(log_probs: tf.Tensor, draws: tf.Tensor, sampling: Sampling) -> tf.Tensor:
    """Chooses a piece for each row, [B] int32, by log_probs [B, V] and draws [B] in [0, 1)."""
    greedy = tf.argmax(log_probs, axis=1, output_type=tf.int32)

    def sample():
        is_warm = sampling.temperature > 0
        temperature = tf.where(is_warm, sampling.temperature, 1.0)[:, None]
        probabilities = _likely(tf.nn.softmax(log_probs / temperature), sampling)
        # The inverse of the distribution function, at the draw.
        cumulative = tf.cumsum(probabilities, axis=1)
        bound = draws[:, None] * cumulative[:, -1:]
        drawn = tf.reduce_sum(tf.cast(cumulative <= bound, tf.int32), axis=1)
        return tf.where(is_warm, drawn, greedy)

    return tf.cond(tf.reduce_any(sampling.temperature > 0), sample, lambda: greedy)


def _likely(probabilities: tf.Tensor, sampling: Sampling) -> tf.Tensor:
    """Zeroes what neither top_k nor, of the rest, top_p allows; [B, V], not normalized."""
    pieces = probabilities.shape[1]

    def keep_top_k():
        top_k = tf.where(sampling.top_k > 0, tf.minimum(sampling.top_k, pieces), pieces)
        return _heaviest(probabilities, tf.ones_like(probabilities), tf.cast(top_k, tf.float32))

    def keep_top_p(truncated):
        return _heaviest(truncated, truncated, sampling.top_p * tf.reduce_sum(truncated, axis=1))

    truncated = tf.cond(tf.reduce_any(sampling.top_k > 0), keep_top_k, lambda: probabilities)
    return tf.cond(tf.reduce_any(sampling.top_p < 1), lambda: keep_top_p(truncated), lambda: truncated)


def _heaviest(probabilities: tf.Tensor, weights: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Keeps the fewest likeliest pieces [B, V] whose weights sum up to `wanted` [B], and their equals.

    The bound is found by bisection, which needs no sorting of V pieces. Floats that are not negative are
    ordered as their bits are, read as integers: after 30 halvings the bound is exact.
    """
    bits = tf.bitcast(probabilities, tf.int32)

    def halve(low, high):
        middle = low + (high - low + 1) // 2
        weight = tf.reduce_sum(tf.where(bits >= middle[:, None], weights, 0.0), axis=1)
        enough = weight >= wanted
        return tf.where(enough, middle, low), tf.where(enough, high, middle - 1)

    bound, _ = tf.while_loop(
        lambda low, high: tf.reduce_any(low < high),
        halve,
        (tf.zeros_like(wanted, tf.int32), tf.fill(tf.shape(wanted), _BITS_OF_ONE)),
        parallel_iterations=1,
    )
    return tf.where(bits >= bound[:, None], probabilities, 0.0)

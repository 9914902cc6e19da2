"""The sum of values by the softmax of scores, with a gradient in fewer passes over the probabilities.

Replaces softmax, dropout and matmul with their own gradients, which take more passes over all probabilities.
The gradient of a score subtracts sum_j w_j (v_j . g) from each key's part; that sum is result . g if the
result is in float32. With a rounded result, what all tokens have in common would not cancel in the gradient:
then the parts are summed, in another pass. Numbers differ by rounding.
"""

from collections.abc import Callable

import tensorflow as tf


def softmax_sum(
    scores: tf.Tensor,
    values: tf.Tensor,
    rate: float,
    keep_mask: tf.Tensor | None,
    drop: Callable,
    scores_gradient: Callable,
    product: Callable,
) -> tf.Tensor:
    """Sums values [B, N, K, H], weighted by the softmax of scores [B, N, Q, K] float32: [B, N, Q, H].

    Args:
        keep_mask: [B, N, Q, K] bool, or None without dropout.
        drop: of probabilities and keep_mask; returns the weights and, for the gradient, the probabilities.
        product: multiplies matrices of the values' type; its result, and this function's, is of that type or
            float32.
    """
    if keep_mask is not None:
        values /= tf.cast(1 - rate, values.dtype)  # instead of the weights, which are many more

    @tf.custom_gradient
    def weighted_sum(scores, values):
        weights = probabilities = tf.cast(tf.nn.softmax(scores), values.dtype)
        if keep_mask is not None:
            weights, probabilities = drop(probabilities, keep_mask)
        result = product(weights, values)

        def gradient(upstream):
            narrow = tf.cast(upstream, values.dtype)
            weights_gradient = product(narrow, values, transpose_b=True)
            result_sum = None
            if result.dtype == tf.float32:
                result_sum = tf.reduce_sum(upstream * result, axis=-1, keepdims=True)
            return (
                scores_gradient(result_sum, weights_gradient, weights, probabilities),
                tf.matmul(weights, narrow, transpose_a=True),
            )

        return result, gradient

    return weighted_sum(scores, values)


def keep(probabilities: tf.Tensor, keep_mask: tf.Tensor) -> tf.Tensor:
    """Zeroes the probabilities that dropout does not keep."""
    return tf.where(keep_mask, probabilities, tf.zeros([], probabilities.dtype))


def keep_signs(probabilities: tf.Tensor, keep_mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Zeroes likewise, but keeps one array for the gradient, not two: the sign marks what was dropped."""
    signed = tf.where(keep_mask, probabilities, -probabilities)
    return tf.nn.relu(signed), tf.abs(signed)


def scores_gradient(result_sum, weights_gradient, weights, probabilities) -> tf.Tensor:
    """Returns the gradient of the scores: [B, N, Q, K] float32.

    Args:
        result_sum: [B, N, Q, 1] float32, the result times its gradient, summed; or None, for the sum of all
            keys' parts.
        weights_gradient: [B, N, Q, K].
        weights, probabilities: [B, N, Q, K], after dropout and before.
    """
    parts = tf.cast(weights_gradient, tf.float32) * tf.cast(weights, tf.float32)
    if result_sum is None:
        result_sum = tf.reduce_sum(parts, axis=-1, keepdims=True)
    return parts - result_sum * tf.cast(probabilities, tf.float32)

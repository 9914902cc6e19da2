"""The normalization of a sum of two streams, forward and backward in one loop over memory each.

Replaces a sum and Keras' normalization, which take a CPU about twice as long: many passes over float32. In
bfloat16, the sum is not rounded before it is normalized. Numbers differ by rounding.
"""

import functools

import tensorflow as tf

from xlnet_tf.layers.base import LAYER_NORM_EPSILON, NormWeights
from xlnet_tf.layers.kernels.xla_fusion import compiled_if_large

# A step has two for each layer, and each saves more than loops of one pass do.
_compiled = functools.partial(compiled_if_large, least_elements=1 << 21)


def normalize_sum(a: tf.Tensor, b: tf.Tensor, norm: NormWeights) -> tf.Tensor:
    """Normalizes a + b [B, Q, D] in float32; the result has their type."""

    @tf.custom_gradient
    def run(a, b, gamma, beta):
        result, mean, scale = _forward(a, b, gamma, beta)

        def gradient(upstream):
            of_sum, *of_weights = _backward(a, b, gamma, mean, scale, upstream)
            # A product with ones takes a CPU less time than a sum of rows.
            ones = tf.ones([1, tf.shape(of_weights[0])[0]])
            return of_sum, of_sum, *(tf.matmul(ones, rows)[0] for rows in of_weights)

        return result, gradient

    return run(a, b, tf.convert_to_tensor(norm.gamma), tf.convert_to_tensor(norm.beta))


@_compiled
def _forward(a, b, gamma, beta):
    """Returns the result, and the mean and the scale of each vector, [B, Q, 1] float32."""
    total = tf.cast(a, tf.float32) + tf.cast(b, tf.float32)
    mean = tf.reduce_mean(total, axis=-1, keepdims=True)
    centered = total - mean
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + LAYER_NORM_EPSILON)
    return tf.cast(centered * scale * gamma + beta, a.dtype), mean, scale


@_compiled
def _backward(a, b, gamma, mean, scale, upstream):
    """Returns the gradient of a and b, and what sums up to those of gamma and beta, [B * Q, D] float32."""
    normalized = (tf.cast(a, tf.float32) + tf.cast(b, tf.float32) - mean) * scale
    upstream = tf.cast(upstream, tf.float32)
    scaled = upstream * gamma
    common = tf.reduce_mean(scaled, axis=-1, keepdims=True)
    along = tf.reduce_mean(scaled * normalized, axis=-1, keepdims=True)
    of_sum = tf.cast((scaled - common - normalized * along) * scale, a.dtype)
    rows = [-1, a.shape[-1]]
    return of_sum, tf.reshape(upstream * normalized, rows), tf.reshape(upstream, rows)

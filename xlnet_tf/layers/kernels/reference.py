"""The kernels as equations: einsum, softmax and TensorFlow's own gradients.

They run without a graph, and are what the tests compare the values and gradients of all other kernels with.
"""

import tensorflow as tf

from xlnet_tf.layers.base import LAYER_NORM_EPSILON, DropoutSeed, fold_in
from xlnet_tf.layers.kernels.dropout_mask import keep_mask_8_bits, philox_words
from xlnet_tf.layers.kernels.matmul import add_bias, einsum, matmul_heads
from xlnet_tf.layers.positions import RelativePositions


class ReferenceKernels:
    """See `Kernels` for what each method does."""

    shares_trace = False

    def matmul(self, rows, weights, transpose_b=False):
        return tf.matmul(rows, tf.cast(weights, rows.dtype), transpose_b=transpose_b)

    def dense(self, rows, weights, bias):
        return add_bias(self.matmul(rows, weights), bias)

    def project_heads(self, stream, weights):
        return einsum("bqd,dnh->bnqh", stream, tf.cast(weights, stream.dtype))

    def merge_heads(self, heads, weights, dtype):
        return einsum("bnqh,dnh->bqd", tf.cast(heads, dtype), tf.cast(weights, dtype))

    def add_biases(self, queries, biases):
        return [queries + bias[:, None, :] for bias in biases]

    def encode_positions(
        self, d_model, query_len, key_len, *, attention_type, clamp_len, direction, rate, seed
    ):
        # What dropout drops of a distance, it drops of the negated one as well.
        positions = RelativePositions.of_step(
            d_model, query_len, key_len, attention_type, clamp_len, direction
        )
        return positions._replace(
            sine=self.dropout(positions.sine, rate, fold_in(seed, DropoutSeed.POSITION_SINE)),
            cosine=self.dropout(positions.cosine, rate, fold_in(seed, DropoutSeed.POSITION_COSINE)),
        )

    def with_positions(self, context, positions):
        del positions
        return context

    def project_positions(self, positions, weights, dtype):
        if positions.keys is not None:
            return tf.cast(positions.keys, dtype)[None]
        return einsum("brd,dnh->bnrh", tf.cast(positions.encoding(), dtype), tf.cast(weights, dtype))

    def position_scores(self, queries, position_keys, context):
        by_distance = matmul_heads(queries, position_keys, transpose_b=True)  # [B, N, Q, R]
        batch, heads, query_len, distances = tf.unstack(tf.shape(by_distance))
        entries = context.distance_entries
        if entries is None:
            positions = tf.range(query_len)[None] if context.positions is None else context.positions
            # A query's keys begin at entry T - i of the table (see positions.py).
            entries = context.query_len - positions[:, :, None] + tf.range(context.key_len)
            entries = tf.clip_by_value(entries, 0, distances - 1)  # of empty slots
        entries = tf.broadcast_to(entries[:, None], [batch, heads, query_len, context.key_len])
        return tf.gather(by_distance, entries, batch_dims=3)

    def combine_scores(self, content, position, segment, context):
        scores = tf.cast(content, tf.float32) + tf.cast(position, tf.float32)
        if segment is not None:
            scores += context.segment_mismatch * tf.cast(segment, tf.float32)
        return scores if context.bias is None else scores + context.bias

    def softmax_sum(self, scores, values, rate, seed):
        probabilities = tf.cast(tf.nn.softmax(scores), values.dtype)
        return tf.matmul(self.dropout(probabilities, rate, seed), values)

    def keep_mask(self, shape, rate, seed):
        return keep_mask_8_bits(shape, rate, seed, philox_words)

    def dropout(self, x, rate, seed):
        return x if seed is None or not rate else self._drop(x, self.keep_mask(tf.shape(x), rate, seed), rate)

    def _drop(self, x, keep_mask, rate):
        return tf.where(keep_mask, x * tf.cast(1 / (1 - rate), x.dtype), tf.zeros([], x.dtype))

    def normalize_sum(self, a, b, norm):
        total = tf.cast(a + b, tf.float32)
        mean, variance = tf.nn.moments(total, axes=[-1], keepdims=True)
        normalized = tf.nn.batch_normalization(
            total, mean, variance, norm.beta, norm.gamma, variance_epsilon=LAYER_NORM_EPSILON
        )
        return tf.cast(normalized, a.dtype)

    def activate(self, rows, activation, rate, seed):
        return self.dropout(activation(rows), rate, seed)

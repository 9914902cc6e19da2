"""Kernels of graphs for any device, GPUs among them; those of CPUs and TPUs replace some more.

In bfloat16 scores by content and by position are added before they are cast to float32; other numbers
differ from the reference's by rounding.
"""

import tensorflow as tf

from xlnet_tf.layers.kernels import position_shift, softmax
from xlnet_tf.layers.kernels.matmul import add_bias, matmul_heads, ordered_grad_fanout
from xlnet_tf.layers.kernels.reference import ReferenceKernels


class GraphKernels(ReferenceKernels):
    """See `Kernels` for what each method does; without training there is nothing to save for a gradient.

    Projections are products of two matrices instead of einsums, and scores by distance are shifted by two
    reshapes instead of gathered, which would take an index for each score; in decoding, they are gathered.
    """

    def __init__(self, training: bool):
        self._training = self.shares_trace = training

    def dense(self, rows, weights, bias):
        # With rows of two axes a CPU runs product, bias and activation as one kernel.
        product = self.matmul(rows, weights)
        if self._training:
            return add_bias(product, bias)
        return tf.nn.bias_add(product, tf.cast(bias, rows.dtype))

    def project_heads(self, stream, weights):
        heads, width = weights.shape[1:]
        rows = tf.reshape(stream, [-1, stream.shape[-1]])
        rows = self.matmul(rows, tf.reshape(weights, [-1, heads * width]))
        length = stream.shape[1] or tf.shape(stream)[1]
        return tf.transpose(tf.reshape(rows, [-1, length, heads, width]), [0, 2, 1, 3])

    def merge_heads(self, heads, weights, dtype):
        d_model, count, width = weights.shape
        rows = tf.reshape(tf.transpose(tf.cast(heads, dtype), [0, 2, 1, 3]), [-1, count * width])
        rows = self.matmul(rows, tf.reshape(weights, [-1, count * width]), transpose_b=True)
        return tf.reshape(rows, [-1, heads.shape[2] or tf.shape(heads)[2], d_model])

    def add_biases(self, queries, biases):
        # Repeated for all rows, and then for all queries: the gradient's sums are faster in this order.
        rows = [tf.shape(queries)[0], queries.shape[1], 1, queries.shape[3]]
        repeated = [tf.broadcast_to(bias[:, None, :], rows) for bias in biases]
        return [part + bias for part, bias in zip(self._fan_out(queries, len(biases)), repeated)]

    def project_positions(self, positions, weights, dtype):
        """Projects sines and cosines of the distances K..0 only; the other distances differ in signs."""
        if positions.keys is not None:
            return tf.cast(positions.keys, dtype)[None]
        d_model, heads, width = weights.shape
        encoded = tf.cast(tf.stack([positions.sine, positions.cosine]), dtype)  # [2, K + 1, D/2]
        halves = tf.cast(tf.reshape(weights, [2, d_model // 2, heads * width]), dtype)
        projected = tf.reshape(tf.matmul(encoded, halves), [2, -1, heads, width])
        odd, even = tf.split(tf.transpose(projected, [0, 2, 1, 3]), 2)  # [1, N, K + 1, H] each
        if positions.direction is not None:
            odd *= tf.cast(positions.direction, dtype)[:, None, None, None]
        # The rows fall to distance 0; those just before it, down to 1, are negated to lie ahead.
        first = (odd.shape[2] or tf.shape(odd)[2]) - 1 - positions.ahead
        negated = tf.slice(even - odd, [0, 0, first, 0], [-1, -1, positions.ahead, -1])
        return tf.concat([even + odd, tf.reverse(negated, [2])], axis=2)

    def position_scores(self, queries, position_keys, context):
        if context.distance_entries is not None:
            return _scores_of_entries(queries, position_keys, context.distance_entries)
        by_distance = matmul_heads(queries, position_keys, transpose_b=True)  # [B, N, Q, R]
        if context.in_order:
            return position_shift.shift_by_row(by_distance, context.key_len)
        return position_shift.shift_by_position(
            by_distance, context.positions, context.query_len, context.key_len, self._training
        )

    def combine_scores(self, content, position, segment, context):
        return add_terms([context.segment_mismatch, context.bias], terms_of(content, position, segment))

    def softmax_sum(self, scores, values, rate, seed):
        if not self._training:
            return super().softmax_sum(scores, values, rate, seed)
        keep_mask = self.keep_mask(tf.shape(scores), rate, seed) if seed is not None and rate else None
        forms = self._keep_probabilities, self._scores_gradient, self._product
        return softmax.softmax_sum(scores, values, rate, keep_mask, *forms)

    def _keep_probabilities(self, probabilities, keep_mask):
        return softmax.keep(probabilities, keep_mask), probabilities

    _scores_gradient = staticmethod(softmax.scores_gradient)
    _product = staticmethod(tf.matmul)

    def _fan_out(self, tensor, count):
        return ordered_grad_fanout(tensor, count) if self._training else [tensor] * count


def _scores_of_entries(queries, position_keys, entries) -> tf.Tensor:
    """Scores keys by their entries [B, Q, K] among distances that are the same for all rows [1, N, R, H].

    Replaces the reference's product for each row and its index for each score. The queries of all rows are
    multiplied at once (0.42 ms instead of 0.81 for 8 rows of Base and 400 distances), and one index fetches
    the scores of all heads. Numbers differ by rounding.
    """
    _, heads, _, width = queries.shape
    batch, query_len = tf.shape(queries)[0], tf.shape(queries)[2]
    together = tf.reshape(tf.transpose(queries, [1, 0, 2, 3]), [heads, batch * query_len, width])
    [position_keys] = tf.unstack(position_keys, num=1)
    by_distance = tf.matmul(together, position_keys, transpose_b=True)  # [N, B * Q, R]
    by_distance = tf.reshape(tf.transpose(by_distance, [1, 2, 0]), [batch, query_len, -1, heads])
    return tf.transpose(tf.gather(by_distance, entries, batch_dims=2), [0, 3, 1, 2])


def terms_of(content, position, segment) -> list[tf.Tensor]:
    """Lists the terms of the scores as `add_terms` takes them."""
    return [content, position] if segment is None else [content, position, segment]


def add_terms(constants, terms, *, shift: bool = False) -> tf.Tensor:
    """Adds the terms of the scores and the bias: [B, N, Q, K] float32.

    Args:
        constants: AttentionContext's segment_mismatch and bias, or None.
        terms: content [B, N, Q, K]; position, likewise, or (with `shift`, for queries in order) by distance,
            for G groups of queries [B, N * G, Q / G, R]; and, with segments, segment [B, N, Q, 1].
    """
    segment_mismatch, bias = constants
    content, position, *segment = terms
    if shift:
        shape = [size or tf.shape(content)[axis] for axis, size in enumerate(content.shape)]
        position = tf.reshape(position_shift.shift_by_row(position, shape[3]), shape)
    scores = tf.cast(content + position, tf.float32)
    for term in segment:
        scores += segment_mismatch * tf.cast(term, tf.float32)
    return scores if bias is None else scores + bias

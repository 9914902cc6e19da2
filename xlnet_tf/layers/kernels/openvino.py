"""Kernels of graphs that OpenVINO compiles for a CPU: served models, without training.

OpenVINO recognises layers by their form, and runs what it recognises as one operation: a bias that is added
by `+` joins its product, and a softmax its two products and all terms between them.
"""

import tensorflow as tf

from xlnet_tf.layers.kernels.graph import GraphKernels
from xlnet_tf.layers.kernels.matmul import matmul_heads
from xlnet_tf.layers.kernels.reference import ReferenceKernels


class OpenVinoKernels(GraphKernels):
    """See `Kernels` for what each method does; numbers differ from the reference's by rounding."""

    add_biases = ReferenceKernels.add_biases
    combine_scores = ReferenceKernels.combine_scores

    def dense(self, rows, weights, bias):
        return self.matmul(rows, weights) + tf.cast(bias, rows.dtype)

    def project_heads(self, stream, weights):
        heads, width = weights.shape[1:]
        rows = self.matmul(stream, tf.reshape(weights, [-1, heads * width]))  # [B, Q, N * H]
        shape = [size or tf.shape(stream)[axis] for axis, size in enumerate(stream.shape[:2])]
        return tf.transpose(tf.reshape(rows, [*shape, heads, width]), [0, 2, 1, 3])

    def merge_heads(self, heads, weights, dtype):
        _, count, width = weights.shape
        rows = tf.transpose(tf.cast(heads, dtype), [0, 2, 1, 3])
        shape = [size or tf.shape(rows)[axis] for axis, size in enumerate(rows.shape[:2])]
        rows = tf.reshape(rows, [*shape, count * width])
        return self.matmul(rows, tf.reshape(weights, [-1, count * width]), transpose_b=True)

    def position_scores(self, queries, position_keys, context):
        if not context.in_order:
            return super().position_scores(queries, position_keys, context)
        by_distance = matmul_heads(queries, position_keys, transpose_b=True)  # [B, N, T, R]
        return _shift_by_row(by_distance, context.key_len)


def _shift_by_row(scores: tf.Tensor, key_len) -> tf.Tensor:
    """Aligns scores by distance [B, N, T, R] with keys, as position_shift.shift_by_row, in one copy.

    Read as one long row from entry T on, row i begins at the entry that its keys begin at.
    """
    shape = tf.shape(scores)
    rows, entries = (scores.shape[axis] or shape[axis] for axis in (2, 3))
    flat = tf.reshape(scores, [-1, scores.shape[1], rows * entries])[:, :, rows:]
    return tf.reshape(flat, [-1, scores.shape[1], rows, entries - 1])[..., :key_len]

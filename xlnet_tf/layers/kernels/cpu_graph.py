"""Kernels of graphs for CPUs: training steps and served models.

Each form's share of a training step's time with it, next to without (4 layers of Base, 512 tokens, two
cores, float32; docs/speed.md): scores added in one loop 0.983, distances projected by halves 0.988, blocks
of queries 0.982, 8 random bits an element 0.986, ThreeFry 0.995, weights transposed on their own 0.977 to
0.995, gradients of the queries added in one loop 0.991. Numbers differ from the reference's by rounding,
and dropout draws other masks.
"""

import tensorflow as tf

from xlnet_tf.layers.kernels import normalization, position_shift, softmax
from xlnet_tf.layers.kernels.dropout_mask import keep_mask_8_bits, threefry_words
from xlnet_tf.layers.kernels.graph import GraphKernels, add_terms, terms_of
from xlnet_tf.layers.kernels.matmul import (
    add_in_order,
    dense_transposed_for_gradient,
    matmul_heads,
    ordered_grad_fanout,
)
from xlnet_tf.layers.kernels.xla_fusion import xla_forward, xla_forward_backward, xla_forward_linear

_add_terms_by_xla = xla_forward_linear(add_terms)
_add_in_order_by_xla = xla_forward(add_in_order)
_keep_by_xla = xla_forward(softmax.keep)
_scores_gradient_by_xla = xla_forward(softmax.scores_gradient, tf.float32)


def _scaled_by_mask(x, keep_mask, rate):
    # A product takes less of a CPU's time than a choice, and its gradient is one product.
    return x * (tf.cast(keep_mask, x.dtype) * tf.cast(1 / (1 - rate), x.dtype))


@xla_forward_backward
def _activate_and_drop(rows, keep_mask, *, activation, rate):
    return _scaled_by_mask(activation(rows), keep_mask, rate)


class CpuGraphKernels(GraphKernels):
    """See `Kernels` for what each method does; XLA, which servers need not have, is for training."""

    def dense(self, rows, weights, bias):
        weights = tf.convert_to_tensor(weights)
        is_slow = rows.dtype == weights.dtype == tf.float32 and weights.shape[0] < weights.shape[1]
        if self._training and is_slow:
            return dense_transposed_for_gradient(rows, weights, tf.cast(bias, rows.dtype))
        return super().dense(rows, weights, bias)

    def position_scores(self, queries, position_keys, context):
        """Leaves scores in order by distance, for combine_scores to shift: 5.2 ms instead of 14.7 a layer."""
        if not context.in_order:
            return super().position_scores(queries, position_keys, context)
        blocks = position_shift.block_positions(queries, position_keys, context.key_len)
        return matmul_heads(*blocks, transpose_b=True)  # [B, N * G, Q / G, R]

    def combine_scores(self, content, position, segment, context):
        add = _add_terms_by_xla if self._training else add_terms
        constants = [context.segment_mismatch, context.bias]
        return add(constants, terms_of(content, position, segment), shift=context.in_order)

    def _keep_probabilities(self, probabilities, keep_mask):
        return _keep_by_xla(probabilities, keep_mask), probabilities

    def _scores_gradient(self, result_sum, weights_gradient, weights, probabilities):
        return _scores_gradient_by_xla(result_sum, weights_gradient, weights, probabilities)

    def keep_mask(self, shape, rate, seed):
        return keep_mask_8_bits(shape, rate, seed, threefry_words)

    def normalize_sum(self, a, b, norm):
        return (normalization if self._training else super()).normalize_sum(a, b, norm)

    def activate(self, rows, activation, rate, seed):
        if seed is None or not rate:
            return activation(rows)
        keep_mask = self.keep_mask(tf.shape(rows), rate, seed)
        return _activate_and_drop(rows, keep_mask, activation=activation, rate=rate)

    _drop = staticmethod(_scaled_by_mask)

    def _fan_out(self, tensor, count):
        if not self._training:
            return super()._fan_out(tensor, count)
        return ordered_grad_fanout(tensor, count, _add_in_order_by_xla)

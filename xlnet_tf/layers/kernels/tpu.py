"""Kernels of TPUs.

Compiled for a core of v3, two layers of Large went from 56 GB of accessed bytes and 133 ms to 3.3 GB and
9.8 ms with rotated positions, by the compiler's own count. Numbers differ from the reference's by
rounding, and dropout draws other masks.
"""

import tensorflow as tf
from absl import logging

from xlnet_tf.layers.base import DropoutSeed, fold_in
from xlnet_tf.layers.kernels import softmax
from xlnet_tf.layers.kernels.dropout_mask import keep_mask_of_tpu
from xlnet_tf.layers.kernels.graph import GraphKernels
from xlnet_tf.layers.kernels.matmul import control_dependency_zero, matmul_in_float32, matmul_narrowed_twice
from xlnet_tf.layers.kernels.position_rotation import PositionRotation, rotated_scores


class TpuKernels(GraphKernels):
    """See `Kernels` for what each method does.

    Positions are rotated: dropout then drops a dimension of the encoding for all distances alike, where other
    kernels draw it for each distance.
    """

    def __init__(self, training: bool):
        super().__init__(training)
        self.shares_trace = False  # what XLA compiles as one program stays one graph

    def matmul(self, rows, weights, transpose_b=False):
        weights = tf.convert_to_tensor(weights)
        if self._training and weights.dtype != rows.dtype:
            return matmul_narrowed_twice(rows, weights, transpose_b)
        return super().matmul(rows, weights, transpose_b)

    def merge_heads(self, heads, weights, dtype):
        """Narrows heads and weights again for the gradient: of heads, only softmax_sum's float32 is kept."""
        merge = super().merge_heads
        if heads.dtype == dtype:
            return merge(heads, weights, dtype)

        @tf.custom_gradient
        def narrow_and_merge(heads, weights):
            def gradient(upstream):
                zero = control_dependency_zero(upstream[0, 0, 0], tf.float32)
                with tf.GradientTape() as tape:
                    tape.watch([heads, weights])
                    narrow_weights = tf.cast(weights + zero, dtype)
                    merged = merge(heads + zero, narrow_weights, dtype)
                return tape.gradient(merged, [heads, weights], upstream)

            return merge(heads, tf.cast(weights, dtype), dtype), gradient

        return narrow_and_merge(heads, tf.convert_to_tensor(weights))

    def encode_positions(
        self, d_model, query_len, key_len, *, attention_type, clamp_len, direction, rate, seed
    ):
        if clamp_len > 0:
            logging.warning(
                "clamp_len is %d: on a TPU a step takes many times as long and far more memory with it, as "
                "positions cannot be rotated then (xlnet-tf tpu-compile shows how much)",
                clamp_len,
            )
            return super().encode_positions(
                d_model,
                query_len,
                key_len,
                attention_type=attention_type,
                clamp_len=clamp_len,
                direction=direction,
                rate=rate,
                seed=seed,
            )
        rotation = PositionRotation.of_step(d_model, query_len, key_len, direction)
        half = tf.ones([d_model // 2])
        return rotation._replace(
            sines=rotation.sines * self.dropout(half, rate, fold_in(seed, DropoutSeed.POSITION_SINE)),
            cosines=rotation.cosines * self.dropout(half, rate, fold_in(seed, DropoutSeed.POSITION_COSINE)),
        )

    def with_positions(self, context, positions):
        if not isinstance(positions, PositionRotation):
            return context
        queries = tf.range(context.query_len)[None] if context.positions is None else context.positions
        return context._replace(query_rotation=positions.rotate_queries(queries))

    def project_positions(self, positions, weights, dtype):
        if isinstance(positions, PositionRotation):
            return positions.project(weights, dtype)
        return super().project_positions(positions, weights, dtype)

    def position_scores(self, queries, position_keys, context):
        if context.query_rotation is not None:
            return rotated_scores(queries, position_keys, context.query_rotation)
        return super().position_scores(queries, position_keys, context)

    _keep_probabilities = staticmethod(softmax.keep_signs)
    _product = staticmethod(matmul_in_float32)
    keep_mask = staticmethod(keep_mask_of_tpu)

"""Two-stream relative attention.

Shapes: B batch, T tokens, P targets, M memory, K = M + T keys, R relative positions, N heads, H head
size, D model. Q stands for a stream's queries: T for the content stream, P for the query stream.
"""

from typing import NamedTuple

import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers.base import ConfiguredLayer, fold_in
from xlnet_tf.layers.kernels import Kernels
from xlnet_tf.layers.kernels.matmul import matmul_heads
from xlnet_tf.layers.map_in_chunks import map_query_blocks
from xlnet_tf.layers.masks import AttentionContext, BlockedContext


class AttentionWeights(NamedTuple):
    """The weights of one layer's attention.

    Attributes:
        query, key, value, position, output: [D, N, H].
        content_bias, position_bias, segment_bias: [N, H], u, v of Transformer-XL and b of XLNet.
        segment_embedding: [2, N, H], of pairs in one segment and in two.
    """

    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    position: tf.Tensor
    output: tf.Tensor
    content_bias: tf.Tensor
    position_bias: tf.Tensor
    segment_bias: tf.Tensor
    segment_embedding: tf.Tensor


def attend(
    weights: AttentionWeights,
    stream: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    position_keys,
    context: AttentionContext,
    kernels: Kernels,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Lets one stream attend to keys and values, both of the content stream.

    Args:
        stream: [B, Q, D], h or g; the result has the same shape.
        keys, values: [B, N, K, H].
        position_keys: what kernels.project_positions returns.
        rate, seed: for dropout on the attention probabilities; no seed outside training.

    Source: paper section 2.3; the terms of the score are Transformer-XL's (section 3.3), and section 2.5's.
    """
    queries = kernels.project_heads(stream, weights.query)  # [B, N, Q, H]
    scores = attention_scores(weights, queries, keys, position_keys, context, kernels)
    attended = kernels.softmax_sum(scores, values, rate, seed)
    if context.query_mask is not None:
        attended *= tf.cast(context.query_mask, attended.dtype)
    return kernels.merge_heads(attended, weights.output, stream.dtype)


def attention_scores(
    weights: AttentionWeights, queries, keys, position_keys, context: AttentionContext, kernels: Kernels
) -> tf.Tensor:
    """Sums the three terms of a pair's score: content, position and segment; [B, N, Q, K] float32.

    Per-query constants are dropped: softmax is invariant to them. So the segment term counts only what pairs
    of two segments have more than pairs of one.
    """
    scale = tf.cast(queries.shape[-1] ** -0.5, queries.dtype)
    biases = [weights.content_bias, weights.position_bias]
    if context.segment_mismatch is not None:
        biases.append(weights.segment_bias)
    biases = [tf.cast(bias, queries.dtype) * scale for bias in biases]
    q_content, q_position, *q_segment = kernels.add_biases(queries * scale, biases)
    segment = None
    if q_segment:
        same, other = tf.unstack(tf.cast(weights.segment_embedding, queries.dtype))  # [N, H]
        segment = matmul_heads(*q_segment, (other - same)[None, :, :, None])  # [B, N, Q, 1]
    return kernels.combine_scores(
        content=tf.matmul(q_content, keys, transpose_b=True),
        position=kernels.position_scores(q_position, position_keys, context),
        segment=segment,
        context=context,
    )


class AttentionBiases(ConfiguredLayer):
    """u, v (Transformer-XL, section 3.3) and b (XLNet, section 2.5): they stand for a query's position."""

    def build(self, input_shape=None):
        for name in ("content_bias", "position_bias", "segment_bias"):
            setattr(self, name, self.add_normal_weight(name, [self.config.n_head, self.config.d_head]))
        super().build(input_shape)


class RelativeAttention(ConfiguredLayer):
    """Multi-head attention with relative positions and relative segments, for one or two streams.

    Both streams take their keys and values from the memory and the content stream, and share all
    weights. The query stream's queries know a target's position but not its content.

    Args:
        attention_dropout: rate on the attention probabilities.
        tied_biases: the AttentionBiases of all layers, or None for own ones (`untie_r`).

    Call args:
        content: h [B, T, D].
        query: g [B, P, D], or None with one stream.
        memory: [B, M, D] of this layer, or None.
        content_context, query_context: AttentionContext of each stream, or BlockedContext.
        weights: AttentionWeights.
        seed: [2] int32 for dropout, None outside training.

    Returns:
        The attention of each stream, projected back to D: [B, T, D] and [B, P, D] (or None). With
        `content_context=None` the content stream only serves keys and values, and its result is None.

    Source: paper sections 2.3 (two streams), 2.4 (recurrence), 2.5 (segments).
    """

    OPTIONS = ("attention_dropout",)

    def __init__(
        self,
        config: XLNetConfig,
        initializer_range: float = 0.02,
        attention_dropout: float = 0.1,
        tied_biases: AttentionBiases | None = None,
        **kwargs,
    ):
        super().__init__(config, initializer_range, **kwargs)
        self.attention_dropout = attention_dropout
        self.biases = tied_biases or AttentionBiases(config, initializer_range, name="biases")

    def build(self, input_shape=None):
        n_head, d_head = self.config.n_head, self.config.d_head
        for name in ("query", "key", "value", "position", "output"):
            shape = [self.config.d_model, n_head, d_head]
            # Without autocast: kernels cast them.
            weight = self.add_normal_weight(f"{name}/kernel", shape, experimental_autocast=False)
            setattr(self, f"{name}_kernel", weight)
        self.segment_embedding = self.add_normal_weight("segment_embedding", [2, n_head, d_head])
        if not self.biases.built:
            self.biases.build()
        super().build(input_shape)

    @property
    def attention_weights(self) -> AttentionWeights:
        """The layer's weights, as `attend` takes them."""
        return AttentionWeights(
            self.query_kernel,
            self.key_kernel,
            self.value_kernel,
            self.position_kernel,
            self.output_kernel,
            self.biases.content_bias,
            self.biases.position_bias,
            self.biases.segment_bias,
            self.segment_embedding,
        )

    def call(
        self, content, query, memory, positions, content_context, query_context, *, weights, kernels, seed
    ):
        source = content if memory is None else tf.concat([tf.cast(memory, content.dtype), content], axis=1)
        keys = kernels.project_heads(source, weights.key)  # [B, N, K, H]
        values = kernels.project_heads(source, weights.value)
        position_keys = kernels.project_positions(positions, weights.position, content.dtype)

        def attention(stream, context, index):
            if stream is None or context is None:
                return None
            dropout = self.attention_dropout, fold_in(seed, index)

            def attend_to(rows, context):
                return attend(weights, rows, keys, values, position_keys, context, kernels, *dropout)

            blocked = isinstance(context, BlockedContext)
            return map_query_blocks(attend_to, stream, context) if blocked else attend_to(stream, context)

        return attention(content, content_context, 0), attention(query, query_context, 1)

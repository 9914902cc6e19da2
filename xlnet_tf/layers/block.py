"""One layer of XLNet: relative attention, then a feed-forward network, each with residual and norm."""

import math
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers.attention import AttentionBiases, AttentionWeights, RelativeAttention
from xlnet_tf.layers.base import ConfiguredLayer, NormWeights, fold_in, layer_norm, normal


def gelu(x: tf.Tensor) -> tf.Tensor:
    """The Gaussian error linear unit in its tanh form, which the released weights were trained with.

    tf.nn.gelu takes the cube as a power, which is slow unless TensorFlow's optimizer of graphs replaces it.
    """
    cube = tf.square(x) * x
    return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * cube)))


ACTIVATIONS = {"gelu": gelu, "relu": tf.nn.relu, "gelu_erf": tf.nn.gelu}


class FeedForwardWeights(NamedTuple):
    """Kernels [D, F] and [F, D], biases [F] and [D]."""

    inner_kernel: tf.Tensor
    inner_bias: tf.Tensor
    outer_kernel: tf.Tensor
    outer_bias: tf.Tensor


class BlockWeights(NamedTuple):
    """All weights of one layer."""

    attention: AttentionWeights
    attention_norm: NormWeights
    feed_forward: FeedForwardWeights
    feed_forward_norm: NormWeights


class FeedForward(ConfiguredLayer):
    """Position-wise network of one hidden layer, with dropout on that and on the result.

    Call args:
        x: [..., D].
        weights: FeedForwardWeights.
        seed: [2] int32 for dropout, None outside training.
    """

    OPTIONS = ("dropout",)

    def __init__(self, config: XLNetConfig, initializer_range: float = 0.02, dropout: float = 0.1, **kwargs):
        super().__init__(config, initializer_range, **kwargs)
        self.dropout = dropout
        # They hold the weights; kernels compute, in the type of activations.
        self.inner, self.outer = (
            tf_keras.layers.Dense(
                width, kernel_initializer=normal(initializer_range), dtype=self.variable_dtype, name=name
            )
            for width, name in ((config.d_inner, "inner"), (config.d_model, "outer"))
        )

    def build(self, input_shape=None):
        for layer, width in ((self.inner, self.config.d_model), (self.outer, self.config.d_inner)):
            with tf.name_scope(layer.name):
                layer.build([None, width])
        super().build(input_shape)

    @property
    def feed_forward_weights(self) -> FeedForwardWeights:
        """The layer's weights."""
        return FeedForwardWeights(self.inner.kernel, self.inner.bias, self.outer.kernel, self.outer.bias)

    def call(self, x, *, weights, kernels, seed=None):
        activation = ACTIVATIONS[self.config.ff_activation]
        rows = tf.reshape(x, [-1, self.config.d_model])  # [B * Q, D]
        hidden = kernels.dense(rows, weights.inner_kernel, weights.inner_bias)  # [B * Q, F]
        hidden = kernels.activate(hidden, activation, self.dropout, fold_in(seed, 0))
        rows = kernels.dense(hidden, weights.outer_kernel, weights.outer_bias)
        rows = kernels.dropout(rows, self.dropout, fold_in(seed, 1))
        return tf.reshape(rows, tf.shape(x))


class TransformerBlock(ConfiguredLayer):
    """Relative attention and feed-forward network for the content and, if given, the query stream.

    Call args and returns: as RelativeAttention, but with BlockWeights; both streams leave with the width D.

    Source: paper section 2.3 and appendix A.2 (the equations of one layer).
    """

    OPTIONS = ("dropout", "attention_dropout")

    def __init__(
        self,
        config: XLNetConfig,
        initializer_range: float = 0.02,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        tied_biases: AttentionBiases | None = None,
        **kwargs,
    ):
        super().__init__(config, initializer_range, **kwargs)
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.attention = RelativeAttention(
            config, initializer_range, attention_dropout, tied_biases, name="attention"
        )
        self.attention_norm = layer_norm("attention_norm")
        self.feed_forward = FeedForward(config, initializer_range, dropout, name="feed_forward")
        self.feed_forward_norm = layer_norm("feed_forward_norm")

    def build(self, input_shape=None):
        for layer in (self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            with tf.name_scope(layer.name):
                layer.build([None, None, self.config.d_model])
        super().build(input_shape)

    @property
    def block_weights(self) -> BlockWeights:
        """The layer's weights; a decoder reads them once for many calls."""
        norms = (NormWeights(norm.gamma, norm.beta) for norm in (self.attention_norm, self.feed_forward_norm))
        attention_norm, feed_forward_norm = norms
        return BlockWeights(
            self.attention.attention_weights,
            attention_norm,
            self.feed_forward.feed_forward_weights,
            feed_forward_norm,
        )

    def call(
        self, content, query, memory, positions, content_context, query_context, *, weights, kernels, seed
    ):
        content_attention, query_attention = self.attention(
            content,
            query,
            memory,
            positions,
            content_context,
            query_context,
            weights=weights.attention,
            kernels=kernels,
            seed=fold_in(seed, 0),
        )
        if content_attention is not None:
            seeds = fold_in(seed, 1), fold_in(seed, 2)
            content = self.finish(weights, content, content_attention, seeds, kernels=kernels)
        if query_attention is not None:
            seeds = fold_in(seed, 3), fold_in(seed, 4)
            query = self.finish(weights, query, query_attention, seeds, kernels=kernels)
        return None if content_attention is None else content, query

    def finish(self, weights: BlockWeights, stream, attended, seeds=(None, None), *, kernels):
        """Adds a stream's attention to it, both [B, Q, D], and computes the rest of the block.

        `seeds` are those of the dropout of attention and of the feed-forward network.
        """
        attended = kernels.dropout(attended, self.dropout, seeds[0])
        stream = kernels.normalize_sum(stream, attended, weights.attention_norm)
        transformed = self.feed_forward(stream, weights=weights.feed_forward, kernels=kernels, seed=seeds[1])
        return kernels.normalize_sum(stream, transformed, weights.feed_forward_norm)

"""One layer of XLNet: relative attention, then a feed-forward network, each with residual and norm."""

import tensorflow as tf
import tf_keras

from xlnet_tf.layers.attention import AttentionBiases, RelativeAttention
from xlnet_tf.layers.dropout import drop, dropout, kept, seed_at
from xlnet_tf.layers.fused import fused
from xlnet_tf.layers.initializers import normal
from xlnet_tf.layers.products import affine

_EPSILON = 1e-12


def gelu(x: tf.Tensor) -> tf.Tensor:
    """The Gaussian error linear unit in its tanh form, which the released weights were trained with."""
    return tf.nn.gelu(x, approximate=True)


ACTIVATIONS = {"gelu": gelu, "relu": tf.nn.relu, "gelu_erf": tf.nn.gelu}


@fused
def _activate_and_drop(rows, is_kept, *, activation: str, rate: float):
    return drop(ACTIVATIONS[activation](rows), is_kept, rate)


class FeedForward(tf_keras.layers.Layer):
    """Position-wise network of one hidden layer, with residual and normalization.

    Args:
        d_model: D.
        d_inner: F.
        activation: "gelu", "relu" or "gelu_erf".
        dropout: rate, on the hidden layer and on the result.
        initializer_range: standard deviation of the kernels' normal initializer.
    """

    def __init__(
        self, d_model: int, d_inner: int, activation: str, dropout: float, initializer_range: float, **kwargs
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_inner = d_inner
        self.activation = activation
        self.dropout = dropout
        self.initializer_range = initializer_range
        # They hold the weights, in float32; `affine` computes, in the type of activations.
        self.inner, self.outer = (
            tf_keras.layers.Dense(
                width, kernel_initializer=normal(initializer_range), dtype=tf.float32, name=name
            )
            for width, name in ((d_inner, "inner"), (d_model, "outer"))
        )

    def build(self, input_shape=None):
        for layer, width in ((self.inner, self.d_model), (self.outer, self.d_inner)):
            with tf.name_scope(layer.name):
                layer.build([None, width])
        super().build(input_shape)

    def call(self, x, seed=None):
        # Two axes, not three: only then does TensorFlow run product, bias and activation as one CPU kernel.
        rows = tf.reshape(x, [-1, self.d_model])  # [B * Q, D]
        training = seed is not None
        hidden = affine(rows, self.inner.kernel, self.inner.bias, training)  # [B * Q, F]
        hidden = self._activate(hidden, seed_at(seed, 0))
        rows = affine(hidden, self.outer.kernel, self.outer.bias, training)
        rows = dropout(rows, self.dropout, seed_at(seed, 1))
        return tf.reshape(rows, tf.shape(x))

    def _activate(self, rows, seed):
        if seed is None or not self.dropout:
            return ACTIVATIONS[self.activation](rows)
        is_kept = kept(tf.shape(rows), self.dropout, seed)
        return _activate_and_drop(rows, is_kept, activation=self.activation, rate=self.dropout)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_inner": self.d_inner,
            "activation": self.activation,
            "dropout": self.dropout,
            "initializer_range": self.initializer_range,
        }


class TransformerBlock(tf_keras.layers.Layer):
    """Relative attention and feed-forward network for the content and, if given, the query stream.

    Args:
        d_model, n_head, d_head, d_inner, activation: as in XLNetConfig.
        dropout: rate on the results of attention and feed-forward network, and inside the latter.
        attention_dropout: rate on the attention probabilities.
        initializer_range: standard deviation of the normal initializer.
        tied_biases: see RelativeAttention.

    Call args and returns: as RelativeAttention; both streams leave with the width D.

    Source: paper section 2.6 and appendix A.2 (the equations of one layer).
    """

    def __init__(
        self,
        d_model: int,
        n_head: int,
        d_head: int,
        d_inner: int,
        activation: str = "gelu",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        initializer_range: float = 0.02,
        tied_biases: AttentionBiases | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.attention = RelativeAttention(
            d_model, n_head, d_head, attention_dropout, initializer_range, tied_biases, name="attention"
        )
        self.attention_norm = _norm("attention_norm")
        self.feed_forward = FeedForward(
            d_model, d_inner, activation, dropout, initializer_range, name="feed_forward"
        )
        self.feed_forward_norm = _norm("feed_forward_norm")

    def build(self, input_shape=None):
        d_model = self.attention.d_model
        for layer in (self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            with tf.name_scope(layer.name):
                layer.build([None, None, d_model])
        super().build(input_shape)

    def call(self, content, query, memory, positions, content_view, query_view=None, seed=None):
        attention = self.attention(
            content, query, memory, positions, content_view, query_view, seed=seed_at(seed, 0)
        )

        def finish(stream, attended, place):
            if attended is None:
                return None
            attended = dropout(attended, self.dropout, seed_at(seed, place))
            stream = tf.cast(self.attention_norm(stream + attended), stream.dtype)
            transformed = self.feed_forward(stream, seed=seed_at(seed, place + 1))
            return tf.cast(self.feed_forward_norm(stream + transformed), stream.dtype)

        return finish(content, attention[0], place=1), finish(query, attention[1], place=3)

    def get_config(self):
        attention, feed_forward = self.attention, self.feed_forward
        return {
            **super().get_config(),
            "d_model": attention.d_model,
            "n_head": attention.n_head,
            "d_head": attention.d_head,
            "d_inner": feed_forward.d_inner,
            "activation": feed_forward.activation,
            "dropout": self.dropout,
            "attention_dropout": attention.attention_dropout,
            "initializer_range": attention.initializer_range,
        }


def _norm(name: str) -> tf_keras.layers.LayerNormalization:
    """Returns a normalization that computes in float32 under any policy."""
    return tf_keras.layers.LayerNormalization(epsilon=_EPSILON, dtype=tf.float32, name=name)

"""One vector for a sequence."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.layers.base import ConfiguredLayer, fold_in, layer_norm, normal
from xlnet_tf.layers.kernels import current, dropout
from xlnet_tf.layers.kernels.matmul import einsum
from xlnet_tf.layers.masks import MASKED_SCORE

METHODS = ("last", "first", "mean", "attn")


def last_position(input_mask: tf.Tensor) -> tf.Tensor:
    """Finds the last token (CLS) of each sequence, padded on either side: [B] int32; T - 1 if it is empty."""
    length = input_mask.shape[1] or tf.shape(input_mask)[1]
    from_the_end = tf.reverse(tf.cast(input_mask, tf.int32), axis=[1])
    return length - 1 - tf.argmax(from_the_end, axis=1, output_type=tf.int32)


class SequenceSummary(ConfiguredLayer):
    """Pools the tokens of a sequence and projects the result.

    Args:
        method: "last", the last token, CLS; "first", the first token; "mean", of all tokens; "attn", a
            learned query attends to all tokens.
        projection: whether a dense layer with tanh follows.
        pool_padding: take padding for tokens, as the original does for all methods but "attn". Where texts
            are answered, padding is always left out.

    Call args:
        sequence_output: [B, T, D]; or [B, 1, D], of the token at `positions`, without a mask.
        input_mask: [B, T], 1 for tokens and 0 for padding; None: no padding.
        seed: [2] int32 for dropout, None outside training.

    Returns:
        [B, D].

    Source: modeling.py summarize_sequence.
    """

    OPTIONS = ("method", "dropout", "attention_dropout", "pool_padding")

    def __init__(
        self,
        config: XLNetConfig,
        initializer_range: float = 0.02,
        method: str = "last",
        projection: bool = True,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        pool_padding: bool = False,
        **kwargs,
    ):
        if method not in METHODS:
            raise UserError(f"the summary is {method!r}; expected one of {', '.join(METHODS)}.")
        super().__init__(config, initializer_range, **kwargs)
        self.method = method
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.pool_padding = pool_padding
        self.pooling = self.projection = None
        if method == "attn":
            self.pooling = AttentionPooling(
                config, initializer_range, dropout, attention_dropout, name="pooling"
            )
        if projection:
            # Holds the weights; kernels compute, in the type of activations.
            self.projection = tf_keras.layers.Dense(
                config.d_model,
                kernel_initializer=normal(initializer_range),
                dtype=self.variable_dtype,
                name="projection",
            )

    def build(self, input_shape=None):
        for layer in filter(None, (self.pooling, self.projection)):
            with tf.name_scope(layer.name):
                layer.build([None, self.config.d_model])
        super().build(input_shape)

    def call(self, sequence_output, input_mask=None, seed=None):
        pooled = self._pool(sequence_output, input_mask, seed)
        if self.projection:
            kernels = current(training=seed is not None)
            pooled = tf.tanh(kernels.dense(pooled, self.projection.kernel, self.projection.bias))
        return dropout(pooled, self.dropout, fold_in(seed, 0))

    def positions(self, tokens: tf.Tensor, input_mask: tf.Tensor | None) -> tf.Tensor | None:
        """Finds the one token that the summary reads, [B, 1] int32, in ids [B, T] or vectors [B, T, D].

        None if it reads all tokens.
        """
        if self.method not in ("last", "first"):
            return None
        is_token = self._is_token(tokens, input_mask)
        if self.method == "last":
            return last_position(is_token)[:, None]
        return tf.argmax(tf.cast(is_token, tf.int32), axis=1, output_type=tf.int32)[:, None]

    @contextlib.contextmanager
    def without_padding(self) -> Iterator[None]:
        """Leaves padding out whatever `pool_padding` says, while a graph is traced."""
        own, self.pool_padding = self.pool_padding, False
        try:
            yield
        finally:
            self.pool_padding = own

    def _is_token(self, tokens, input_mask) -> tf.Tensor:
        if input_mask is None or (self.pool_padding and self.method != "attn"):
            return tf.ones(tf.shape(tokens)[:2], tf.bool)
        return tf.cast(input_mask, tf.bool)

    def _pool(self, tokens, input_mask, seed) -> tf.Tensor:
        if (positions := self.positions(tokens, input_mask)) is not None:
            return tf.gather(tokens, positions[:, 0], batch_dims=1)
        is_token = self._is_token(tokens, input_mask)
        if self.method == "attn":
            return self.pooling(tokens, is_token, seed=fold_in(seed, 1))
        weights = tf.cast(is_token, tf.float32)
        weights /= tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1.0)
        mean = tf.einsum("btd,bt->bd", tf.cast(tokens, tf.float32), weights)
        return tf.cast(mean, tokens.dtype)

    def get_config(self):
        return {**super().get_config(), "projection": self.projection is not None}


class AttentionPooling(ConfiguredLayer):
    """Attention of one learned query to tokens [B, T, D], without positions and residual: [B, D].

    Source: modeling.py multihead_attn.
    """

    OPTIONS = ("dropout", "attention_dropout")

    def __init__(
        self,
        config: XLNetConfig,
        initializer_range: float = 0.02,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        **kwargs,
    ):
        super().__init__(config, initializer_range, **kwargs)
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.norm = layer_norm("norm")

    def build(self, input_shape=None):
        d_model = self.config.d_model
        self.query = self.add_normal_weight("query", [d_model])
        for name in ("query", "key", "value", "output"):
            shape = [d_model, self.config.n_head, self.config.d_head]
            setattr(self, f"{name}_kernel", self.add_normal_weight(f"{name}/kernel", shape))
        with tf.name_scope(self.norm.name):
            self.norm.build([None, d_model])
        super().build(input_shape)

    def call(self, tokens, is_token, seed=None):
        def cast(weight):
            return tf.cast(weight, tokens.dtype)

        query = einsum("d,dnh->nh", cast(self.query), cast(self.query_kernel)) * cast(
            self.config.d_head**-0.5
        )
        keys = einsum("btd,dnh->btnh", tokens, cast(self.key_kernel))
        values = einsum("btd,dnh->btnh", tokens, cast(self.value_kernel))
        scores = tf.cast(einsum("nh,btnh->bnt", query, keys), tf.float32)
        probabilities = cast(tf.nn.softmax(tf.where(is_token[:, None, :], scores, MASKED_SCORE)))
        probabilities = dropout(probabilities, self.attention_dropout, fold_in(seed, 0))
        attended = einsum("bnt,btnh->bnh", probabilities, values)
        attended = einsum("bnh,dnh->bd", attended, cast(self.output_kernel))
        return cast(self.norm(dropout(attended, self.dropout, fold_in(seed, 1))))

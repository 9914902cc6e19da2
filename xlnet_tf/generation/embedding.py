"""Vectors of texts in a graph: one for each text, one for each token."""

from collections.abc import Mapping

import tensorflow as tf

from xlnet_tf.generation.results import Vectors
from xlnet_tf.generation.scoring import text_tokens
from xlnet_tf.layers.summary import last_position
from xlnet_tf.models.encoder import XLNetEncoder


def embed(
    encoder: XLNetEncoder, features: Mapping[str, tf.Tensor], layer: int = -1, in_blocks: bool = False
) -> Vectors:
    """Reads features [B, T] of texts [A SEP CLS], padded on any side: every token sees the whole text."""
    encoded = encoder(features, training=False, in_blocks=in_blocks)["encoder_outputs"][layer]
    is_token = tf.cast(features["input_mask"], tf.bool)
    tokens = tf.where(is_token[:, :, None], tf.cast(encoded, tf.float32), 0.0)
    weights = tf.cast(text_tokens(features), tf.float32)
    weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True))
    return Vectors(
        mean=tf.einsum("btd,bt->bd", tokens, weights),
        cls=tf.gather(tokens, last_position(is_token), batch_dims=1),
        tokens=tokens,
    )

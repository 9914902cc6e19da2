"""Texts as vectors: one for each text, one for each token."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.generation.graphs import Graphs
from xlnet_tf.generation.layout import by_length, check_text_lengths
from xlnet_tf.generation.scoring import text_tokens
from xlnet_tf.layers.summary import last_position
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.schema import is_whole
from xlnet_tf.text.inputs import text_list
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

_ENDS = (SEP_ID, CLS_ID)
_FEATURES = ("input_word_ids", "input_mask", "input_type_ids")
_SHORTEST = len(_ENDS) + 1  # which has room for text


class Vectors(NamedTuple):
    """The vectors of texts.

    Attributes:
        mean: [B, D] float32, the mean of the text's tokens without SEP and CLS; zeros for an empty text.
        cls: [B, D] float32, CLS, the last token.
        tokens: [B, T, D] float32, each token; zeros for padding.
    """

    mean: tf.Tensor
    cls: tf.Tensor
    tokens: tf.Tensor


@dataclasses.dataclass(frozen=True)
class TextVectors:
    """The vectors of N texts.

    Attributes:
        mean, cls: float32 [N, D], as in Vectors.
        tokens: for each text float32 [tokens, D], SEP and CLS last; None if not requested.
        pieces: for each text those tokens; None likewise.
    """

    mean: np.ndarray
    cls: np.ndarray
    tokens: list[np.ndarray] | None = None
    pieces: list[list[str]] | None = None


def embed_texts(
    encoder: XLNetEncoder,
    tokenizer: XLNetTokenizer,
    texts: Sequence[str],
    *,
    tokens: bool = False,
    layer: int = -1,
    batch_size: int = 8,
    run: Graphs | None = None,
) -> TextVectors:
    """Reads texts, each as a whole: time grows with the square of the longest.

    Args:
        texts: N strings, of at most layout.LONGEST tokens.
        layer: whose output to take, from 0; -1 is the last.
        batch_size: B, texts read together; of about the same length, since all are padded to the longest.
        run: the encoder's graphs, for calls that follow each other; None: new ones.
    """
    texts = text_list(texts, "texts")
    ids = tokenizer.encode_rows(texts, "texts")
    lengths = [len(text) + len(_ENDS) for text in ids]
    check_text_lengths("texts", lengths)
    check_layer(layer, encoder.config.n_layer)
    mean, cls = (np.empty([len(ids), encoder.config.d_model], np.float32) for _ in range(2))
    token_vectors = [None] * len(ids)
    run = run or Graphs(encoder)
    for rows in by_length(lengths, batch_size):
        features = tokenizer([texts[row] for row in rows], seq_len=max(_SHORTEST, lengths[rows[-1]]))
        outputs = run(_embed, *(features[name] for name in _FEATURES), layer=layer)
        mean[rows], cls[rows] = outputs.mean, outputs.cls
        if tokens:
            for row, vectors in zip(rows, outputs.tokens):
                token_vectors[row] = vectors[-lengths[row] :]  # padded on the left
    if not tokens:
        return TextVectors(mean, cls)
    return TextVectors(
        mean, cls, token_vectors, [[tokenizer.id_to_piece(i) for i in [*text, *_ENDS]] for text in ids]
    )


def _embed(encoder, *features, layer, in_blocks):
    return embed(encoder, dict(zip(_FEATURES, features, strict=True)), layer, in_blocks)


def check_layer(layer: int, layers: int) -> None:
    """Raises UserError if a model with this number of layers lacks the layer."""
    if not is_whole(layer) or not -layers <= layer < layers:
        raise UserError(f"layer is {layer!r}; the model has layers 0 to {layers - 1}, and -1 is the last.")


def embed(
    encoder: XLNetEncoder, features: Mapping[str, tf.Tensor], layer: int = -1, in_blocks: bool = False
) -> Vectors:
    """Reads texts with the content stream alone: every token sees the whole text.

    The features are input_word_ids, input_mask, input_type_ids [B, T] of texts [A SEP CLS], padded on any
    side; `in_blocks` is XLNetEncoder's.
    """
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

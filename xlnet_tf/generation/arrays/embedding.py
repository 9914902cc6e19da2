"""Vectors of texts, from a model of any runtime."""

from collections.abc import Callable, Sequence

import numpy as np

from xlnet_tf.generation.arrays.engine import EncoderEngine
from xlnet_tf.generation.results import TextVectors
from xlnet_tf.generation.settings import by_length, check_layer, check_text_lengths
from xlnet_tf.text.inputs import text_list
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

_ENDS = (SEP_ID, CLS_ID)
_SHORTEST = len(_ENDS) + 1  # which has room for text


def embed_texts(
    engine: EncoderEngine,
    tokenizer: XLNetTokenizer,
    texts: Sequence[str],
    *,
    tokens: bool = False,
    layer: int = -1,
    batch_size: int = 8,
) -> TextVectors:
    """Reads texts, of up to settings.LONGEST tokens, as a whole: time grows with the square of their length.

    `layer` is the one whose output to take, from 0; -1 is the last. `batch_size` texts, of about the same
    length, are read together.
    """
    texts = text_list(texts, "texts")
    ids = tokenizer.encode_rows(texts, "texts")
    lengths = [len(text) + len(_ENDS) for text in ids]
    check_text_lengths("texts", lengths, longest=engine.longest)
    check_layer(layer, engine.n_layer)
    mean, cls = (np.empty([len(ids), engine.d_model], np.float32) for _ in range(2))
    token_vectors = [None] * len(ids)
    for rows in by_length(lengths, batch_size):
        features = tokenizer([texts[row] for row in rows], seq_len=max(_SHORTEST, lengths[rows[-1]]))
        outputs = engine.embed(*features.values(), layer=layer)
        mean[rows], cls[rows] = outputs.mean, outputs.cls
        if tokens:
            for row, vectors in zip(rows, outputs.tokens):
                token_vectors[row] = vectors[-lengths[row] :]  # padded on the left
    if not tokens:
        return TextVectors(mean, cls)
    return TextVectors(
        mean, cls, token_vectors, [[tokenizer.id_to_piece(i) for i in [*text, *_ENDS]] for text in ids]
    )


def embedder(
    engine: EncoderEngine, tokenizer: XLNetTokenizer, layer: int
) -> Callable[[Sequence[str], bool], TextVectors]:
    """Returns what embeds texts, all of a call in one batch, given whether each token is to have a vector."""
    return lambda texts, tokens: embed_texts(
        engine, tokenizer, texts, tokens=tokens, layer=layer, batch_size=max(1, len(texts))
    )

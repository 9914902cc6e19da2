"""Reading texts for the heads: at once, or in segments with memory, as long documents need."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.layers.seeds import fold_in
from xlnet_tf.models.encoder import XLNetEncoder

TOKEN_FEATURES = ("input_word_ids", "input_mask", "input_type_ids")


def token_features(features: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Picks the features [B, T] that describe the tokens; a task's records hold others, too."""
    return {name: features[name] for name in TOKEN_FEATURES if name in features}


def encode_long(
    encoder: XLNetEncoder, features: Mapping[str, Any], segment_len: int = 0, training: bool | None = None
) -> tf.Tensor:
    """Reads texts of T tokens.

    With `segment_len`, S = T / segment_len segments are read one after the other, each with the encoder's
    memory of those before it: time and space grow with T instead of its square. No gradient flows back
    through the memory. Padding is hidden, in the memory as well, so that whole segments of it change nothing.

    Args:
        encoder: with segment_len, one of memory_len > 0.
        features: input_word_ids [B, T], and optionally input_mask, input_type_ids, dropout_seed and,
            without segment_len, position_keys.
        segment_len: tokens of a segment; 0 reads all T at once.
        training: whether to drop out.

    Returns:
        [B, T, D].

    Raises:
        UserError: the encoder has no memory, or T is not a multiple of segment_len.

    Source: paper section 2.4.
    """
    tokens = token_features(features)
    seed = {name: features[name] for name in ("dropout_seed",) if name in features}
    if not segment_len:
        known = {name: features[name] for name in ("position_keys",) if name in features}
        return encoder({**tokens, **seed, **known}, training=training)["sequence_output"]

    length = tokens["input_word_ids"].shape[1]
    _check(encoder, length, segment_len)
    sequence_outputs = []
    memory: dict[str, tf.Tensor] = {}
    for segment, start in enumerate(range(0, length, segment_len)):
        inputs = {name: value[:, start : start + segment_len] for name, value in tokens.items()}
        seeds = {name: fold_in(value, segment) for name, value in seed.items()}
        outputs = encoder({**inputs, **seeds, **memory}, training=training)
        memory = {"memory": outputs["next_memory"], "memory_mask": outputs["next_memory_mask"]}
        sequence_outputs.append(outputs["sequence_output"])
    return tf.concat(sequence_outputs, axis=1)


def _check(encoder: XLNetEncoder, length: int | None, segment_len: int) -> None:
    if not encoder.memory_len:
        raise UserError(
            f"texts are to be read in segments of {segment_len} tokens by an encoder without memory; "
            f"expected memory_len of at least 1, as {segment_len}, or segment_len 0."
        )
    if length is None or length % segment_len:
        raise UserError(
            f"texts of {length} tokens are to be read in segments of {segment_len}; expected a fixed length "
            "that is a multiple of segment_len. Change one of the two."
        )

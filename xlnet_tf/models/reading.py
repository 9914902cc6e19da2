"""Reading texts for the heads: at once, or in segments with memory, as long documents need."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.layers.base import fold_in
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.text.special_tokens import PAD_ID

TOKEN_FEATURES = ("input_word_ids", "input_mask", "input_type_ids")


def token_features(features: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Picks the features [B, T] that describe the tokens; a task's records hold others, too."""
    return {name: features[name] for name in TOKEN_FEATURES if name in features}


def encode_long(
    encoder: XLNetEncoder,
    features: Mapping[str, Any],
    segment_len: int = 0,
    training: bool | None = None,
    memory_gradient: int = 0,
) -> tf.Tensor:
    """Reads texts of T tokens.

    With `segment_len`, S = T / segment_len segments are read one after the other, each with the encoder's
    memory of those before it: time and space grow with T instead of its square. Padding is hidden, in the
    memory as well, so that whole segments of it change nothing.

    The gradient flows back through the memory within blocks of memory_gradient + 1 segments, counted from the
    end of the row; with S - 1 or more, through all.

    Args:
        encoder: with segment_len, one of memory_len > 0.
        features: input_word_ids [B, T], and optionally input_mask, input_type_ids, dropout_seed,
            output_positions (see XLNetEncoder) and, without segment_len, position_keys, or packed_start and
            packed_source (see `packed_source`).
        segment_len: tokens of a segment; 0 reads all T at once.

    Returns:
        [B, T, D]; of output_positions, [B, Q, D].

    Source: paper section 2.4.
    """
    tokens = token_features(features)
    seed = {name: features[name] for name in ("dropout_seed",) if name in features}
    chosen = features.get("output_positions")
    if chosen is not None:
        chosen = tf.cast(chosen, tf.int32)  # [B, Q]
    if "packed_source" in features:
        vectors = _encode_packed(encoder, features, seed, training)
        return vectors if chosen is None else tf.gather(vectors, chosen, batch_dims=1)
    if not segment_len:
        known = {name: features[name] for name in ("position_keys", "output_positions") if name in features}
        return encoder({**tokens, **seed, **known}, training=training)["sequence_output"]

    return _encode_segments(encoder, tokens, seed, chosen, segment_len, training, memory_gradient)


def _encode_segments(
    encoder: XLNetEncoder, tokens, seed, chosen, segment_len, training, memory_gradient
) -> tf.Tensor:
    """Reads texts in segments; returns the vectors of all tokens [B, T, D] or of those chosen [B, Q, D]."""
    length = tokens["input_word_ids"].shape[1]
    _check(encoder, length, segment_len)
    sequence_outputs = []
    memory: dict[str, tf.Tensor] = {}
    starts = range(0, length, segment_len)
    for segment, start in enumerate(starts):
        if (len(starts) - segment) % (memory_gradient + 1) == 0:
            memory = {name: tf.stop_gradient(value) for name, value in memory.items()}
        inputs = {name: value[:, start : start + segment_len] for name, value in tokens.items()}
        if chosen is not None:
            positions = chosen - start  # some lie in other segments
            inputs["output_positions"] = tf.clip_by_value(positions, 0, segment_len - 1)
        seeds = {name: fold_in(value, segment) for name, value in seed.items()}
        outputs = encoder(
            {**inputs, **seeds, **memory}, training=training, memory_gradient=memory_gradient > 0
        )
        memory = {"memory": outputs["next_memory"], "memory_mask": outputs["next_memory_mask"]}
        vectors = outputs["sequence_output"]
        if chosen is not None:
            is_inside = positions == inputs["output_positions"]
            vectors = tf.where(is_inside[:, :, None], vectors, tf.zeros_like(vectors))
        sequence_outputs.append(vectors)
    if chosen is not None:
        return tf.add_n(sequence_outputs)  # each token lies in one segment
    return tf.concat(sequence_outputs, axis=1)


def packed_source(
    starts: tf.Tensor, input_mask: tf.Tensor, rows: int | tf.Tensor, micro_batches: int = 1
) -> tf.Tensor:
    """Returns which token is at each place of packed rows: int32 [M * R, T], -1 for padding.

    Tokens are numbered within their micro-batch, of which the B rows hold M one after the other. `starts`
    [B, S] are where a row's S texts begin in its R packed rows, `input_mask` [B, S * T] pads on either side.
    """
    width = input_mask.shape[1] // starts.shape[1]  # T
    begins = tf.reshape(starts, [micro_batches, 1, -1])  # [M, 1, texts]
    lengths, firsts = _tokens(input_mask, width)
    ends = begins + tf.reshape(lengths, [micro_batches, 1, -1])
    moved = tf.range(tf.shape(begins)[2]) * width + tf.reshape(firsts, [micro_batches, 1, -1]) - begins
    positions = tf.range(rows * width)  # of the micro-batch's packed rows
    is_inside = (begins <= positions[:, None]) & (positions[:, None] < ends)  # [M, R * T, texts]
    source = tf.reduce_sum(tf.where(is_inside, moved, 0), axis=2) + positions
    source = tf.where(tf.reduce_any(is_inside, axis=2), source, -1)
    return tf.reshape(source, [micro_batches * rows, width])


def _tokens(input_mask: tf.Tensor, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the lengths of texts of T tokens with padding on either side, and where they begin: [texts]."""
    is_token = tf.reshape(tf.cast(input_mask, tf.int32), [-1, width])
    return tf.reduce_sum(is_token, axis=1), tf.argmax(is_token, axis=1, output_type=tf.int32)


def _encode_packed(encoder: XLNetEncoder, features, seed, training) -> tf.Tensor:
    """Reads texts in packed rows; what it returns is as they came, [B, T, D]."""
    source = features["packed_source"]  # [R, T]
    tokens = token_features(features)
    width = tokens["input_word_ids"].shape[1]
    is_token, position = source >= 0, tf.maximum(source, 0)
    packed = {
        name: tf.where(is_token, tf.gather(tf.reshape(tf.cast(values, tf.int32), [-1]), position), PAD_ID)
        for name, values in tokens.items()
        if name != "input_mask"
    }
    packed["input_text_ids"] = tf.where(is_token, position // width, -1)
    vectors = encoder({**packed, **seed}, training=training)["sequence_output"]
    _, firsts = _tokens(features["input_mask"], width)
    target = tf.reshape(features["packed_start"], [-1, 1]) + tf.range(width) - firsts[:, None]  # [B, T]
    target = tf.where(tf.cast(features["input_mask"], tf.bool), target, 0)

    @tf.custom_gradient
    def unpacked(vectors):  # a gather's own gradient is a scatter, which is slow on TPUs
        def gradient(upstream):
            upstream = tf.gather(tf.reshape(upstream, [-1, upstream.shape[-1]]), position)
            return tf.where(is_token[:, :, None], upstream, tf.zeros_like(upstream))

        return tf.gather(tf.reshape(vectors, [-1, vectors.shape[-1]]), target), gradient

    return unpacked(vectors)


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

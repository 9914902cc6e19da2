"""Cuts and packs the pieces of texts as TensorFlow operations: what `packing` does for a row, for a batch."""

from collections.abc import Sequence

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.text.packing import CLS_SEGMENT, PAD_SEGMENT, PADDING_SIDES, SEGMENT_A, SEGMENT_B
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID


def pack(
    ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None = None, *, seq_len, padding: str = "left"
) -> dict[str, tf.Tensor]:
    """Puts special tokens around texts or pairs of texts, cuts what is too long, and pads what is too short.

    Ids are ragged int32 [N, (pieces)], without special tokens; seq_len T is an int, or an int32 scalar, for
    which the caller checks that special tokens and a piece fit. Returns input_word_ids, input_mask (1: a
    token) and input_type_ids, each int32 [N, T].
    """
    if padding not in PADDING_SIDES:
        raise UserError(f"padding is {padding!r}; expected one of {', '.join(PADDING_SIDES)}.")
    special = 2 if ids_b is None else 3
    if isinstance(seq_len, int) and seq_len <= special:
        raise UserError(f"seq_len is {seq_len}, which leaves no room for text in addition to SEP and CLS.")
    ids_a, ids_b = truncate(ids_a, ids_b, seq_len - special)
    rows = ids_a.nrows(out_type=tf.int32)
    separators, classes = tf.fill([rows, 1], SEP_ID), tf.fill([rows, 1], CLS_ID)
    texts = [ids_a, separators] if ids_b is None else [ids_a, separators, ids_b, separators]
    tokens = tf.concat([*texts, classes], axis=1)

    lengths = _lengths(tokens)[:, None]
    columns = tf.range(seq_len)[None, :]
    # [N, T], each column's place among the row's tokens.
    positions = columns if padding == "right" else columns - (seq_len - lengths)
    real = (positions >= 0) & (positions < lengths)
    starts = tf.cast(tokens.row_starts(), tf.int32)[:, None]
    word_ids = tf.gather(tokens.values, tf.where(real, starts + positions, 0))
    second = positions > _lengths(ids_a)[:, None]
    segments = tf.where(second, SEGMENT_B, SEGMENT_A)
    segments = tf.where(positions == lengths - 1, CLS_SEGMENT, segments)
    return {
        "input_word_ids": tf.where(real, word_ids, PAD_ID),
        "input_mask": tf.cast(real, tf.int32),
        "input_type_ids": tf.where(real, segments, PAD_SEGMENT),
    }


def truncate(
    ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None, room
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None]:
    """Cuts texts [N, (pieces)] at their ends, as `packing.truncated` does, to the room of all or of each."""
    length_a = _lengths(ids_a)
    if ids_b is None:
        return first_pieces(ids_a, room), None
    length_b = _lengths(ids_b)
    excess = tf.maximum(length_a + length_b - room, 0)
    # First the longer text alone gives, until both are equally long.
    alone = tf.minimum(excess, tf.abs(length_a - length_b))
    both = excess - alone
    keep_a = length_a - tf.where(length_a >= length_b, alone, 0) - both // 2
    keep_b = length_b - tf.where(length_a < length_b, alone, 0) - (both + 1) // 2
    return first_pieces(ids_a, keep_a), first_pieces(ids_b, keep_b)


def first_pieces(ids: tf.RaggedTensor, most: int | tf.Tensor) -> tf.RaggedTensor:
    """Returns at most the first `most` pieces of each text; one number, or one for each text [N]."""
    most = tf.broadcast_to(tf.cast(most, tf.int64), [ids.nrows()])
    return _keep(ids, lambda positions, lengths: positions < tf.gather(most, ids.value_rowids()))


def last_pieces(ids: tf.RaggedTensor, most: int | tf.Tensor) -> tf.RaggedTensor:
    """Returns at most the last `most` pieces of each text, see first_pieces."""
    most = tf.broadcast_to(tf.cast(most, tf.int64), [ids.nrows()])
    return _keep(ids, lambda positions, lengths: positions >= lengths - tf.gather(most, ids.value_rowids()))


def without_middle(ids: tf.RaggedTensor, room: int) -> tf.RaggedTensor:
    """Cuts texts in their middle: a quarter of the room is for their beginning, the rest for their end."""
    head = room // 4
    return _keep(
        ids,
        lambda positions, lengths: (
            (lengths <= room) | (positions < head) | (positions >= lengths - (room - head))
        ),
    )


def _keep(ids: tf.RaggedTensor, rule) -> tf.RaggedTensor:
    """Keeps the pieces for which the rule holds, given the position of each and the length of its text."""
    positions = tf.ragged.range(ids.row_lengths()).flat_values
    lengths = tf.gather(ids.row_lengths(), ids.value_rowids())
    return tf.ragged.boolean_mask(ids, ids.with_flat_values(rule(positions, lengths)))


def bucket(lengths: tf.Tensor, buckets: Sequence[int]) -> tf.Tensor:
    """Returns the smallest of ascending buckets that holds the longest row; else the last one."""
    longest = tf.reduce_max(lengths)
    fits = tf.searchsorted(tf.constant(buckets, tf.int32), longest[None])[0]
    return tf.gather(tf.constant(buckets, tf.int32), tf.minimum(fits, len(buckets) - 1))


def _lengths(ids: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(ids.row_lengths(), tf.int32)

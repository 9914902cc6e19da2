"""Texts with gaps in a graph: reads `<mask>` as a gap, and fills gaps with pieces.

Shapes: B batch, T tokens, G gaps, C fillings of a text.
"""

import tensorflow as tf

from xlnet_tf.generation.arrays.gaps import MARK
from xlnet_tf.generation.layout import TextLayout, infilling
from xlnet_tf.text.graph.tokenizer import GraphTokenizer
from xlnet_tf.text.special_tokens import EOP_ID, MASK_ID, PAD_ID, SYMBOLS

# What Python takes for whitespace, and so the cleaning of texts.
_BEGINS_WITH_SPACE = r"(?s)[\s\x1c-\x1f\x{85}\p{Z}].*"


def gaps(
    tokenizer: GraphTokenizer, texts: tf.Tensor, longest: int | None = None
) -> tuple[TextLayout, tf.Tensor]:
    """Reads texts in which `<mask>` marks the gaps, in the order from left to right.

    A text is split at its marks: a mark with a space before or after it is a word, or the start or end of
    one. Texts longer than `longest` tokens, gaps included, lose their end. Returns the layout, and which
    texts were cut, bool [B].
    """
    with tf.device("/CPU:0"):
        parts = tf.strings.split(texts, MARK)  # [B, (parts)]
        is_first = tf.ragged.range(parts.row_lengths()).flat_values == 0
        spaced = tf.strings.regex_full_match(parts.flat_values, _BEGINS_WITH_SPACE)
        # After a symbol that is always a piece of its own, text has no space before it.
        joins = ~is_first & ~spaced & (parts.flat_values != "")
        ids = tokenizer.encode(tf.where(joins, SYMBOLS[EOP_ID] + parts.flat_values, parts.flat_values))
    ids = _without_symbol(ids, joins)
    marks = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.math.count_nonzero(~is_first)], MASK_ID), tf.cast(~is_first, tf.int64), validate=False
    )
    ids = tf.concat([marks, ids], axis=1)
    ids = tf.RaggedTensor.from_row_splits(
        ids.values, tf.gather(ids.row_splits, parts.row_splits), validate=False
    )
    pieces = ids[:, :longest]
    dense = pieces.to_tensor(PAD_ID, shape=[-1, tf.maximum(pieces.bounding_shape(axis=1), 1)])
    is_gap = dense == MASK_ID  # no text can spell it
    where = tf.where(is_gap)  # row and position
    order = tf.RaggedTensor.from_value_rowids(tf.cast(where[:, 1], tf.int32), where[:, 0], parts.nrows())
    order = tf.concat([order.to_tensor(-1), tf.fill([parts.nrows(), 1], -1)], axis=1)  # at least one gap
    order = order[:, : tf.maximum(tf.shape(order)[1] - 1, 1)]
    layout = infilling(dense, ~is_gap & (dense != PAD_ID), order)
    return layout, pieces.row_lengths() < ids.row_lengths()


def _without_symbol(ids: tf.RaggedTensor, has_symbol: tf.Tensor) -> tf.RaggedTensor:
    """Drops, where has_symbol [N], the first `<eop>` and what stands before it."""
    positions = tf.cast(tf.ragged.range(ids.row_lengths()).flat_values, tf.int64)
    rows, count = ids.value_rowids(), ids.nrows()
    symbol = tf.math.unsorted_segment_min(
        tf.where(ids.values == EOP_ID, positions, positions.dtype.max), rows, count
    )
    keep_mask = ~tf.gather(has_symbol, rows) | (positions > tf.gather(symbol, rows))
    return tf.ragged.boolean_mask(ids, ids.with_values(keep_mask))


def fill_in(layout: TextLayout, tokens: tf.Tensor) -> tf.RaggedTensor:
    """Returns texts with tokens [B, C, G] in their gaps, in that order: ragged int32 [B * C, (tokens)]."""
    candidates = tf.shape(tokens)[1]
    ids, order = (tf.repeat(values, candidates, axis=0) for values in (layout.ids, layout.order))
    positions = tf.where(order >= 0)
    rows = tf.stack([positions[:, 0], tf.cast(tf.gather_nd(order, positions), tf.int64)], axis=1)
    flat = tf.reshape(tokens, tf.shape(order))
    filled = tf.tensor_scatter_nd_update(ids, rows, tf.gather_nd(flat, positions))
    return tf.RaggedTensor.from_tensor(filled, padding=PAD_ID)

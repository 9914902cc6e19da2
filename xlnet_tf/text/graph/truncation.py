"""Cuts of texts [N, (pieces)] that are too long, as the builders of examples make them."""

import tensorflow as tf


def first_pieces(ids: tf.RaggedTensor, most: int | tf.Tensor) -> tf.RaggedTensor:
    """Returns the first pieces of each text.

    Args:
        ids: [N, (pieces)].
        most: of each text [N], or of all.
    """
    most = tf.broadcast_to(tf.cast(most, tf.int64), [ids.nrows()])
    return _keep(ids, lambda positions, lengths: positions < tf.gather(most, ids.value_rowids()))


def last_pieces(ids: tf.RaggedTensor, most: int | tf.Tensor) -> tf.RaggedTensor:
    """Returns the last pieces of each text; arguments as in first_pieces."""
    most = tf.broadcast_to(tf.cast(most, tf.int64), [ids.nrows()])
    return _keep(ids, lambda positions, lengths: positions >= lengths - tf.gather(most, ids.value_rowids()))


def without_middle(ids: tf.RaggedTensor, room: int) -> tf.RaggedTensor:
    """Cuts texts in their middle.

    Args:
        ids: [N, (pieces)].
        room: most pieces of a text; a quarter of them from its beginning, the rest from its end.
    """
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

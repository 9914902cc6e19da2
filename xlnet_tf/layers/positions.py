"""Relative positions: distances, their sinusoid encoding, and the shift that aligns scores with keys.

Queries are numbered i = 0..T-1 in the segment; keys j = 0..K-1 are the memory's M and then the
segment's T. Their distance is M + i - j. A table of distances K, K-1, ... lists, for a query at i,
its keys' distances as the K entries that begin at entry T - i.
"""

from typing import NamedTuple

import tensorflow as tf

from xlnet_tf.layers import hardware
from xlnet_tf.layers.rotation import Rotation

_GROUP = 128  # queries


class RelativePositions(NamedTuple):
    """Encoding of the distances K..0, from which all R of a step follow.

    A row of the batch that is read backward has all its distances negated. Sines are odd and cosines
    even, so one table of the distances K..0 serves both directions, and keys ahead of their query: the
    encoding of a distance is [sine, cosine], that of the negated one [-sine, cosine].

    Attributes:
        sine: [K + 1, D/2]; None with a rotation.
        cosine: [K + 1, D/2]; likewise.
        ahead: how many distances, -1 and less, follow those of the table.
        direction: [B], +1 forward and -1 backward, or None when all rows are read forward.
        keys: [N, R, H], the encoding as a layer's attention projects it, if that is known already.
        rotation: what takes the encoding's place on hardware that is slow at shifting scores; see there.
    """

    sine: tf.Tensor | None = None
    cosine: tf.Tensor | None = None
    ahead: int | tf.Tensor = 0
    direction: tf.Tensor | None = None
    keys: tf.Tensor | None = None
    rotation: Rotation | None = None


def relative_distances(query_len, key_len, attention_type: str = "bi", clamp_len: int = -1) -> tf.Tensor:
    """Lists the distances that occur, from the farthest key in the past on.

    The first entry, K, belongs to no pair; it is there because the original has it.

    Args:
        query_len: T, length of the segment.
        key_len: K, memory and segment together.
        attention_type: "bi" (keys on both sides) or "uni" (keys up to the query only).
        clamp_len: largest distance that is told apart, in tokens; -1 for no limit.

    Returns:
        [R] float32: K..-T+1 for "bi" (R = K + T), K..0 for "uni" (R = K + 1).

    Source: paper section 2.3 with Transformer-XL appendix B; modeling.py relative_positional_encoding.
    """
    last = -query_len if attention_type == "bi" else -1
    distances = tf.cast(tf.range(key_len, last, -1), tf.float32)
    if clamp_len > 0:
        distances = tf.clip_by_value(distances, -float(clamp_len), float(clamp_len))
    return distances


def sinusoid_encoding(distances: tf.Tensor, d_model: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Encodes distances by sines and cosines of D/2 wavelengths, always in float32.

    bfloat16 would merge distances: at 512 tokens only 769 of 1024 stay apart.

    Args:
        distances: [R] in tokens.
        d_model: D.

    Returns:
        Sines and cosines, [R, D/2] each.
    """
    wavelength_index = tf.range(0, d_model, 2, dtype=tf.float32)
    frequencies = 1.0 / tf.pow(10000.0, wavelength_index / d_model)  # [D/2]
    angles = distances[:, None] * frequencies[None, :]
    return tf.sin(angles), tf.cos(angles)


def of_shorter(table: tf.Tensor, length, attention_type: str = "bi") -> tf.Tensor:
    """Picks the distances in a shorter text, without memory.

    Args:
        table: [L, N, R, H], a row for each of the `relative_distances` in a longer text.
        length: T of the shorter one; that of a longer one is an error of TensorFlow.
        attention_type: see relative_distances.

    Returns:
        [L, N, R', H].
    """
    entries = tf.shape(table)[2]
    longest, after = (entries // 2, length) if attention_type == "bi" else (entries - 1, 1)
    # tf.slice rather than indexing: it refuses to begin before the first row.
    return tf.slice(table, [0, 0, longest - length, 0], [-1, -1, length + after, -1])


def group_len(length: int) -> int:
    """Returns how many of so many queries `by_windows` keeps together."""
    return _GROUP if length % _GROUP == 0 else length


def by_windows(queries: tf.Tensor, keys: tf.Tensor, key_len) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits the queries 0..T-1 into groups that are scored by those distances alone that they meet.

    That is for CPUs, for attention to both sides, and for texts of a known length of several groups. Of
    others both stay as they are.

    Args:
        queries: [B, N, T, H].
        keys: [B or 1, N, R, H], a row for each of the `relative_distances`.
        key_len: K.

    Returns:
        Both with G groups for each head, [B, N * G, T / G, H] and [B or 1, N * G, T / G + K, H]; what
        `shift_by_row` makes of their product is that of all queries.
    """
    _, heads, length, width = queries.shape
    distances = keys.shape[2]
    to_both_sides = length and distances and distances == length + key_len
    if hardware.kind() != "cpu" or not to_both_sides:
        return queries, keys
    group = group_len(length)
    firsts = range(length - group, -1, -group)
    if len(firsts) == 1:
        return queries, keys
    windows = [tf.slice(keys, [0, 0, first, 0], [-1, -1, group + key_len, -1]) for first in firsts]
    windows = tf.reshape(tf.stack(windows, axis=2), [-1, heads * len(firsts), group + key_len, width])
    return tf.reshape(queries, [-1, heads * len(firsts), group, width]), windows


def shift_by_row(scores: tf.Tensor, key_len) -> tf.Tensor:
    """Aligns scores by distance with keys, for the queries 0..T-1 in order.

    Row i keeps the K entries from entry T - i on. Read as one long row, that is a constant stride of
    R - 1, so two reshapes do it without moving data twice.

    Args:
        scores: [B, N, T, R] by distance.
        key_len: K.

    Returns:
        [B, N, T, K].
    """
    shape = tf.shape(scores)
    rows = scores.shape[2] or shape[2]
    entries = scores.shape[3] or shape[3]
    heads = scores.shape[1]
    # tf.slice rather than indexing: its gradient is a plain padding.
    scores = tf.reshape(scores, [-1, heads, entries, rows])
    scores = tf.slice(scores, [0, 0, 1, 0], [-1, -1, -1, -1])
    scores = tf.reshape(scores, [-1, heads, rows, entries - 1])
    return tf.slice(scores, [0, 0, 0, 0], [-1, -1, -1, key_len])


def shift_by_position(scores: tf.Tensor, positions: tf.Tensor, query_len, key_len) -> tf.Tensor:
    """Aligns scores by distance with keys, for queries at given positions of the segment.

    Args:
        scores: [B, N, P, R] by distance.
        positions: [B, P] int32, each query's place in the segment.
        query_len: T.
        key_len: K.

    Returns:
        [B, N, P, K].
    """
    entries = scores.shape[3] or tf.shape(scores)[3]
    firsts = query_len - positions  # [B, P]

    def take(rows, firsts, count):
        """Picks so many entries of each row, from its first one on; those outside of the row are zero."""
        # Heads last, so that an index moves a run of numbers and not a single one.
        by_entry = tf.pad(tf.transpose(rows, [0, 2, 3, 1]), [[0, 0], [0, 0], [1, 1], [0, 0]])
        index = firsts[:, :, None] + tf.range(1, count + 1)
        index = tf.clip_by_value(index, 0, tf.shape(by_entry)[2] - 1)
        return tf.transpose(tf.gather(by_entry, index, batch_dims=2), [0, 3, 1, 2])

    # The gradient of such a gather is a gather as well; TensorFlow's own would be a slow scatter.
    @tf.custom_gradient
    def shift(rows):
        return take(rows, firsts, key_len), lambda upstream: take(upstream, -firsts, entries)

    return shift(scores)

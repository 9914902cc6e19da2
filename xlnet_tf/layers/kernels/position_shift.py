"""Scores by distance, aligned with keys: the forms of CPUs, and of TPUs where positions are not rotated.

Shapes: as in attention.py, with T = query_len and K = key_len.
"""

import tensorflow as tf

_BLOCK = 128  # queries of a block


def block_len(length: int) -> int:
    """Returns how many of these queries `block_positions` keeps together."""
    return _BLOCK if length % _BLOCK == 0 else length


def block_positions(queries: tf.Tensor, keys: tf.Tensor, key_len) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits the queries 0..T-1 into blocks that are scored only by the distances that they meet.

    Replaces a product with all T + K distances by products with T / G + K of them. It takes attention to both
    sides and a known length of several blocks; else both stay as they are.

    Args:
        queries: [B, N, T, H].
        keys: [B or 1, N, R, H], a row for each distance, in the order of `RelativePositions.of_step`.

    Returns:
        Both with G blocks for each head, [B, N * G, T / G, H] and [B or 1, N * G, T / G + K, H];
        `shift_by_row` turns their product into that of all queries.
    """
    _, heads, length, width = queries.shape
    distances = keys.shape[2]
    if not length or not distances or distances != length + key_len:
        return queries, keys
    block = block_len(length)
    firsts = range(length - block, -1, -block)
    if len(firsts) == 1:
        return queries, keys
    blocks = [tf.slice(keys, [0, 0, first, 0], [-1, -1, block + key_len, -1]) for first in firsts]
    blocks = tf.reshape(tf.stack(blocks, axis=2), [-1, heads * len(firsts), block + key_len, width])
    return tf.reshape(queries, [-1, heads * len(firsts), block, width]), blocks


def shift_by_row(scores: tf.Tensor, key_len) -> tf.Tensor:
    """Aligns scores by distance [B, N, T, R] with keys [B, N, T, K], for the queries 0..T-1 in order.

    Row i keeps the K entries from entry T - i on. Read as one long row, that is a constant stride of
    R - 1, so two reshapes do it without moving data twice.
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


def shift_by_position(
    scores: tf.Tensor, positions: tf.Tensor, query_len, key_len, training: bool
) -> tf.Tensor:
    """Aligns scores by distance [B, N, P, R] of queries at positions [B, P] with keys [B, N, P, K]."""
    entries = scores.shape[3] or tf.shape(scores)[3]
    firsts = query_len - positions  # [B, P]

    def take(rows, firsts, count):
        """Picks `count` entries of each row, from its first one on; those outside of the row are zero."""
        # Heads last, so that an index moves a run of numbers and not a single one.
        by_entry = tf.pad(tf.transpose(rows, [0, 2, 3, 1]), [[0, 0], [0, 0], [1, 1], [0, 0]])
        index = firsts[:, :, None] + tf.range(1, count + 1)
        index = tf.clip_by_value(index, 0, tf.shape(by_entry)[2] - 1)
        return tf.transpose(tf.gather(by_entry, index, batch_dims=2), [0, 3, 1, 2])

    if not training:
        return take(scores, firsts, key_len)

    # The gradient of such a gather is a gather as well; TensorFlow's own would be a slow scatter.
    @tf.custom_gradient
    def shift(rows):
        return take(rows, firsts, key_len), lambda upstream: take(upstream, -firsts, entries)

    return shift(scores)

"""Who may see whom. Every mask of keys is boolean and says what is visible, not what is hidden."""

import tensorflow as tf


def permutation_visible(rank: tf.Tensor, is_target: tf.Tensor, queries: tf.Tensor | None = None) -> tf.Tensor:
    """Expands permutation ranks to the mask of the factorization order.

    A target sees what comes strictly before it in the order. Any other token also sees its equals:
    context tokens, all of one rank, see each other.

    Args:
        rank: [B, T] integers; a smaller rank is earlier in the factorization order.
        is_target: [B, T] bool, the tokens to predict.
        queries: [B, Q] int32, positions of the tokens i; None: all.

    Returns:
        [B, T or Q, T] bool: whether token i (axis 1) may see token j (axis 2). The content stream adds the
        diagonal.

    Source: paper section 2.2 (eq. 3) and 2.4 (partial prediction).
    """
    rank = tf.cast(rank, tf.int32)
    bound = rank + tf.cast(~is_target, tf.int32)
    if queries is not None:
        bound = tf.gather(bound, queries, batch_dims=1)
    return rank[:, None, :] < bound[:, :, None]


def causal_visible(
    query_len, memory_len, same_length: bool = False, queries: tf.Tensor | None = None
) -> tf.Tensor:
    """The mask of left-to-right attention.

    Args:
        query_len: T.
        memory_len: M.
        same_length: hides, from the query at i, the i oldest keys, so that all queries see equally many.
        queries: [B, Q] int32, positions in the segment; None: all.

    Returns:
        [T, K] or [B, Q, K] bool. The content stream adds the diagonal, which same_length can hide without a
        memory.

    Source: modeling.py _create_mask.
    """
    query = (tf.range(query_len) if queries is None else queries)[..., None]
    key = tf.range(memory_len + query_len)[None, :]
    visible = key <= query + memory_len
    if same_length:
        visible &= ~((key < query_len) & (key < query))
    return visible


def other_segment(type_ids: tf.Tensor, memory_len, queries: tf.Tensor | None = None) -> tf.Tensor:
    """Marks the pairs of query and key from different segments; the memory counts as segment 0.

    Args:
        type_ids: [B, T] integers.
        memory_len: M.
        queries: [B, Q] int32, positions in the segment; None: all.

    Returns:
        [B, T or Q, K] float32, 1 for such pairs.
    """
    type_ids = tf.cast(type_ids, tf.int32)
    key_type_ids = tf.pad(type_ids, [[0, 0], [memory_len, 0]])
    if queries is not None:
        type_ids = tf.gather(type_ids, queries, batch_dims=1)
    return tf.cast(type_ids[:, :, None] != key_type_ids[:, None, :], tf.float32)


def target_flags(target_positions: tf.Tensor, length) -> tf.Tensor:
    """Marks the targets of each row.

    Args:
        target_positions: [B, P] places in the segment; -1 is an empty slot.
        length: T.

    Returns:
        [B, T] bool.
    """
    positions = tf.cast(target_positions, tf.int32)
    return tf.reduce_any(positions[:, :, None] == tf.range(length), axis=1)


def take_rows(mask: tf.Tensor, target_positions: tf.Tensor) -> tf.Tensor:
    """Picks the targets' rows of a mask.

    Args:
        mask: [B, T, K].
        target_positions: [B, P] int32; an empty slot (-1) gets row 0.

    Returns:
        [B, P, K].
    """
    return tf.gather(mask, tf.maximum(target_positions, 0), batch_dims=1)


def with_memory(visible: tf.Tensor | None, memory_mask: tf.Tensor | None) -> tf.Tensor | None:
    """Puts the memory's slots, visible to every query, before a segment's keys.

    Args:
        visible: [B, Q, T] bool.
        memory_mask: [B, M] bool, the slots that hold something; None without memory.

    Returns:
        [B, Q, K] bool.
    """
    if memory_mask is None:
        return visible
    queries = visible.shape[1] or tf.shape(visible)[1]
    return tf.concat([tf.repeat(memory_mask[:, None, :], queries, axis=1), visible], axis=-1)

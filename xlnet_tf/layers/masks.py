"""Attention masks: who may see whom. Every mask of keys is boolean and True where a key is visible.

Shapes: as in attention.py, with T = query_len, M = memory_len and K = key_len. `queries`, [B, Q] int32, are
positions in the segment; None: all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

MASKED_SCORE = -1e30  # far below any score; an exact zero after the float32 softmax


class AttentionContext(NamedTuple):
    """What one stream's queries may see, and where they stand; the same in all layers.

    Attributes:
        query_len: T, the length of the segment that the queries belong to.
        key_len: K.
        bias: [B or 1, 1, Q, K] float32, added to the scores (see attention_bias); None when every query
            sees every key.
        segment_mismatch: [B, 1, Q, K] float32, 1 where query and key lie in different segments; None
            without relative segment encoding.
        positions: [B, Q] int32, the queries' positions in the segment; None for 0..T-1.
        distance_entries: [B, Q, K] int32, for each pair its entry among the R distances. For decoding, where
            keys are in no order; None otherwise. The position keys must then be the same for all rows.
        query_mask: [B, 1, Q, 1] float, 0 for queries whose attention is to be zero; None for none.
        query_rotation: set by kernels that rotate positions (see Kernels.with_positions).
    """

    query_len: int | tf.Tensor
    key_len: int | tf.Tensor
    bias: tf.Tensor | None = None
    segment_mismatch: tf.Tensor | None = None
    positions: tf.Tensor | None = None
    distance_entries: tf.Tensor | None = None
    query_mask: tf.Tensor | None = None
    query_rotation: Any = None

    @property
    def in_order(self) -> bool:
        """Whether the queries are the segment's tokens, from the first to the last."""
        return self.positions is None and self.distance_entries is None


class BlockedContext(NamedTuple):
    """The context of a stream that is too long for all scores to be in memory at once.

    Attributes:
        size: int32 scalar, queries that are scored at a time.
        of_block: returns the AttentionContext, with positions, of the queries from one number up to another.
    """

    size: tf.Tensor
    of_block: Callable[[tf.Tensor, tf.Tensor], AttentionContext]


def attention_bias(visible: tf.Tensor) -> tf.Tensor:
    """Converts a boolean visibility mask to an additive attention bias, float32.

    A query that sees nothing gets equal scores for all keys, as the bias swallows them.
    """
    return tf.where(visible, 0.0, MASKED_SCORE)


def permutation_visible(rank: tf.Tensor, is_target: tf.Tensor, queries: tf.Tensor | None = None) -> tf.Tensor:
    """Expands permutation ranks to the mask of the factorization order: bool [B, T or Q, T].

    A target sees what comes strictly before it in the order. Any other token also sees its equals:
    context tokens, all of one rank, see each other. The content stream adds the diagonal.

    Args:
        rank: [B, T] integers; a smaller rank is earlier in the factorization order.
        is_target: [B, T] bool, the tokens to predict.

    Source: paper section 2.2 (eq. 3) and 2.3 (partial prediction).
    """
    rank = tf.cast(rank, tf.int32)
    bound = rank + tf.cast(~is_target, tf.int32)
    if queries is not None:
        bound = tf.gather(bound, queries, batch_dims=1)
    return rank[:, None, :] < bound[:, :, None]


def causal_visible(
    query_len, memory_len, same_length: bool = False, queries: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the mask of left-to-right attention, [T, K] or [B, Q, K] bool.

    same_length hides, from the query at i, the i oldest keys, so that all queries see equally many. The
    content stream adds the diagonal, which same_length can hide without a memory.

    Source: modeling.py _create_mask.
    """
    query = (tf.range(query_len) if queries is None else queries)[..., None]
    key = tf.range(memory_len + query_len)[None, :]
    visible = key <= query + memory_len
    if same_length:
        visible &= ~((key < query_len) & (key < query))
    return visible


def segment_mismatch(type_ids: tf.Tensor, memory_len, queries: tf.Tensor | None = None) -> tf.Tensor:
    """Marks the pairs of query and key from different segments, [B, T or Q, K] float32; the memory's is 0."""
    type_ids = tf.cast(type_ids, tf.int32)
    key_type_ids = tf.pad(type_ids, [[0, 0], [memory_len, 0]])
    if queries is not None:
        type_ids = tf.gather(type_ids, queries, batch_dims=1)
    return tf.cast(type_ids[:, :, None] != key_type_ids[:, None, :], tf.float32)


def same_text(text_ids: tf.Tensor, queries: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the mask of rows that hold several texts, by each token's number: [B, T or Q, T] bool."""
    query_ids = text_ids if queries is None else tf.gather(text_ids, queries, batch_dims=1)
    return query_ids[:, :, None] == text_ids[:, None, :]


def target_flags(target_positions: tf.Tensor, length) -> tf.Tensor:
    """Marks the targets at positions [B, P] of each row, -1 being an empty slot: [B, T] bool."""
    positions = tf.cast(target_positions, tf.int32)
    return tf.reduce_any(positions[:, :, None] == tf.range(length), axis=1)


def take_rows(mask: tf.Tensor, target_positions: tf.Tensor) -> tf.Tensor:
    """Picks the targets' rows [B, P, K] of a mask [B, T, K]; an empty slot (-1) gets row 0."""
    return tf.gather(mask, tf.maximum(target_positions, 0), batch_dims=1)


def with_memory(visible: tf.Tensor | None, memory_mask: tf.Tensor | None) -> tf.Tensor | None:
    """Puts the memory's slots [B, M], those that hold something being visible, before keys: [B, Q, K]."""
    if memory_mask is None:
        return visible
    memory_visible = tf.repeat(memory_mask[:, None, :], tf.shape(visible)[1], axis=1)
    return tf.concat([memory_visible, visible], axis=-1)

"""Who may see whom in one call of the encoder: the masks of both streams, built once for all layers.

Shapes: as in layers/attention.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.layers import masks
from xlnet_tf.layers.kernels import Kernels
from xlnet_tf.layers.masks import AttentionContext, BlockedContext

_SCORES_OF_BLOCK = 1 << 23  # queries times keys that are scored at a time: 32 MB for each term of the sum


@dataclasses.dataclass(frozen=True)
class ContextBuilder:
    """Builds the streams' contexts from the features of a call: T queries and M slots of memory.

    Targets and output positions are [B, P] and [B, Q] int32; None without, or with target_mask.
    """

    features: Mapping[str, Any]
    query_len: int | tf.Tensor
    memory_len: int | tf.Tensor
    memory_mask: tf.Tensor | None
    target_positions: tf.Tensor | None
    output_positions: tf.Tensor | None
    attention_type: str
    same_length: bool
    uniform_when_blind: bool
    dtype: tf.DType | str

    def contexts(self) -> tuple[AttentionContext, AttentionContext | None]:
        """Returns the contexts of the content stream and of the second one, None without one."""
        visible = self._visible()  # [B, T, K]
        mismatch = self._mismatch(self.memory_len)  # [B, T, K]
        key_len = self.memory_len + self.query_len
        content_visible = visible
        if visible is not None:
            itself = tf.range(self.query_len)[:, None] + self.memory_len == tf.range(key_len)[None, :]
            content_visible = visible | itself
        context = AttentionContext(self.query_len, key_len)
        query_context = None
        if (targets := self.target_positions) is not None:
            rows, segments = (_take_rows(mask, targets) for mask in (visible, mismatch))  # [B, P, K]
            query_context = self._query_context(context, rows, segments, targets)
        elif "target_mask" in self.features:
            query_context = self._query_context(context, visible, mismatch, None)
        elif self.output_positions is not None:
            rows, segments = (_take_rows(mask, self.output_positions) for mask in (content_visible, mismatch))
            query_context = _masked(context, rows, segments)._replace(positions=self.output_positions)
        return _masked(context, content_visible, mismatch), query_context

    def blocked_contexts(
        self, kernels: Kernels, positions: Any, n_head: int
    ) -> tuple[BlockedContext, BlockedContext | None]:
        """Returns the same contexts for few queries at a time, with positions of kernels.encode_positions."""
        if unknown := self.features.keys() & {"memory", "direction", "permutation_mask"}:
            raise UserError(f"{', '.join(sorted(unknown))} cannot be read in blocks; leave in_blocks=False.")
        batch_size, length = tf.unstack(tf.shape(self.features["input_word_ids"]))
        builder = dataclasses.replace(self, query_len=length)
        everywhere = tf.tile(tf.range(length)[None], [batch_size, 1])

        def blocked(query_positions, is_query):
            def of_block(begin, end):
                queries = query_positions[:, begin:end]
                return kernels.with_positions(builder._block_context(queries, is_query), positions)

            return BlockedContext(tf.maximum(_SCORES_OF_BLOCK // (batch_size * n_head * length), 1), of_block)

        content_context = blocked(everywhere, is_query=False)
        if (targets := self.target_positions) is not None:
            return content_context, blocked(targets, is_query=True)
        if self.output_positions is not None:
            return content_context, blocked(self.output_positions, is_query=False)
        return content_context, blocked(everywhere, is_query=True) if "target_mask" in self.features else None

    def _block_context(self, queries: tf.Tensor, is_query: bool) -> AttentionContext:
        """Returns the context of queries at these positions [B, Q]; -1 is an empty slot."""
        rows = tf.maximum(queries, 0)
        visible, mismatch = self._visible(rows), self._mismatch(0, rows)
        context = AttentionContext(self.query_len, self.query_len)
        if is_query:
            return self._query_context(context, visible, mismatch, queries)
        if visible is not None:
            visible |= rows[:, :, None] == tf.range(self.query_len)
        return _masked(context, visible, mismatch)._replace(positions=queries)

    def _mismatch(self, memory_len, queries: tf.Tensor | None = None) -> tf.Tensor | None:
        if "input_type_ids" not in self.features:
            return None
        return masks.segment_mismatch(self.features["input_type_ids"], memory_len, queries)

    def _visible(self, queries: tf.Tensor | None = None) -> tf.Tensor | None:
        """Combines order, padding, direction and memory, for queries [B, Q] or all; None hides nothing."""
        features = self.features
        num_queries = self.query_len if queries is None else tf.shape(queries)[1]
        visible = None
        if "permutation_rank" in features:
            visible = masks.permutation_visible(features["permutation_rank"], self._is_target(), queries)
        elif "permutation_mask" in features:
            visible = tf.cast(features["permutation_mask"], tf.bool)
        if "input_mask" in features:
            real = tf.cast(features["input_mask"], tf.bool)[:, None, :]  # [B, 1, T]
            real = tf.repeat(real, num_queries, axis=1)
            visible = real if visible is None else visible & real
        if "input_text_ids" in features:
            same = masks.same_text(features["input_text_ids"], queries)
            visible = same if visible is None else visible & same
        if visible is None and (self.memory_mask is not None or self.attention_type == "uni"):
            batch_size = tf.shape(features["input_word_ids"])[0]
            visible = tf.ones([batch_size, num_queries, self.query_len], tf.bool)
        visible = masks.with_memory(visible, self.memory_mask)
        if self.attention_type == "uni":
            visible &= masks.causal_visible(self.query_len, self.memory_len, self.same_length, queries)
        return visible

    def _is_target(self) -> tf.Tensor:
        if self.target_positions is not None:
            return masks.target_flags(self.target_positions, self.query_len)
        if "target_mask" in self.features:
            return tf.cast(self.features["target_mask"], tf.bool)
        raise UserError(
            "permutation_rank came without targets, on which its meaning depends; expected target_positions "
            "or target_mask as well, or permutation_mask instead."
        )

    def _query_context(self, context: AttentionContext, visible, mismatch, targets) -> AttentionContext:
        query_mask = None
        if targets is not None:
            query_mask = targets >= 0
        if visible is not None and not self.uniform_when_blind:
            sees_some = tf.reduce_any(visible, axis=-1)
            query_mask = sees_some if query_mask is None else query_mask & sees_some
        if query_mask is not None:
            query_mask = tf.cast(query_mask, self.dtype)[:, None, :, None]
        return _masked(context, visible, mismatch)._replace(positions=targets, query_mask=query_mask)


def _take_rows(mask: tf.Tensor | None, positions: tf.Tensor) -> tf.Tensor | None:
    return None if mask is None else masks.take_rows(mask, positions)


def _masked(context: AttentionContext, visible, mismatch) -> AttentionContext:
    """Adds the visibility mask and the segment mismatch, both [B, Q, K], with an axis for the heads."""
    return context._replace(
        bias=None if visible is None else masks.attention_bias(visible[:, None]),
        segment_mismatch=None if mismatch is None else mismatch[:, None],
    )

"""Two-stream decoding, a token at a time, with the content stream's keys and values kept.

To predict the token at a position, the query stream there attends, in each layer, to the content states of
what comes earlier in the factorization order. Those never change: a content token sees what precedes it in
the order, and itself. So their keys and values are computed once. A step takes, for each candidate text, one
row of the content stream, the token written last, and one row of the query stream for each target through all
layers.

A key's slot in the cache says nothing of its position: positions, and who sees which slot, are data. That
makes all orders alike, and lets the candidates of a text share one cache: each sees the context and slots of
its own, and to continue another candidate is to see what that one saw.

Shapes: B batch, T tokens, P targets, C candidates of a text, S slots, Q rows of a step for a text, N heads, H
head size, D model, V vocabulary, R relative positions.

Source: paper section 2.3 (two streams).
"""

from typing import NamedTuple

import tensorflow as tf
from typing_extensions import Self

from xlnet_tf.errors import UserError
from xlnet_tf.generation.cached_layer import CachedLayer, HeadRecorder, put, shape_of
from xlnet_tf.generation.layout import TextLayout, check_others_are_seen
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.layers.masks import AttentionContext, attention_bias
from xlnet_tf.layers.positions import RelativePositions
from xlnet_tf.models.pretrainer import XLNetPretrainer


class Cache(NamedTuple):
    """What a step knows of the tokens before it.

    Attributes:
        keys, values: each layer's, [B, N, H, S] and [B, N, S, H].
        positions: [B, S] int32, of the tokens in the slots.
        visible: [B, C, S] bool, the slots that each candidate sees.
        used: number of used slots, a scalar; the slots after them are free.
    """

    keys: tuple[tf.Tensor, ...]
    values: tuple[tf.Tensor, ...]
    positions: tf.Tensor
    visible: tf.Tensor
    used: tf.Tensor

    def follow(self, parents: tf.Tensor) -> Self:
        """Lets each candidate continue its parent [B, C], another candidate or itself."""
        return self._replace(visible=tf.gather(self.visible, parents, batch_dims=1))

    def take_slots(self, positions: tf.Tensor) -> Self:
        """Gives each candidate a free slot, which none but it sees, for a token at its position [B, C]."""
        candidates = tf.range(shape_of(positions)[1])
        owner = tf.range(shape_of(self.positions)[1]) - self.used  # [S]: whose the slot becomes
        becomes = owner == candidates[:, None]  # [C, S]
        new_positions = tf.gather(positions, tf.clip_by_value(owner, 0, candidates[-1]), axis=1)  # [B, S]
        return self._replace(
            positions=tf.where(tf.reduce_any(becomes, axis=0), new_positions, self.positions),
            visible=self.visible | becomes,
            used=self.used + candidates[-1] + 1,
        )


class CachedDecoder:
    """Predicts tokens in any factorization order, for C candidates of each text.

    It reads the model's weights when it is created, not in the loop over steps, where casts and 8-bit weights
    then cost nothing: create it in the graph that uses it.
    """

    def __init__(self, model: XLNetPretrainer, layout: TextLayout, candidates: int = 1, xla: bool = False):
        encoder = model.encoder
        self._left_to_right = encoder.attention_type == "uni"
        check_others_are_seen(encoder)
        if encoder.uniform_when_blind:
            raise UserError(
                "the encoder has uniform_when_blind=True, which lets a token that nothing precedes see "
                "padding; expected False: give this option when loading the model."
            )
        self._model = model
        self._layout = layout
        self.candidates = candidates
        self._xla = xla
        direction = "uni" if layout.forward or self._left_to_right else "bi"
        positions = RelativePositions.of_step(
            encoder.config.d_model, layout.length, layout.length, direction, encoder.clamp_len
        )
        self._kernels = kernels_lib.current(training=False)
        self._layers = [
            CachedLayer.read(block, positions, encoder.compute_dtype, self._kernels)
            for block in encoder.blocks
        ]
        self._word_embedding = tf.cast(tf.convert_to_tensor(encoder.word_embedding), encoder.compute_dtype)
        self._mask_embedding = tf.cast(encoder.mask_embedding, encoder.compute_dtype)
        self._lm_bias = tf.cast(model.lm_bias, tf.float32)

    def start(self, targets: tf.Tensor) -> tuple[tf.Tensor, Cache]:
        """Reads the context and predicts targets, positions [B, P] int32 (-1: empty), from it alone.

        Returns their logits [B, P, V] float32, meaningless for empty slots, and the cache, with room for what
        will be written.
        """
        layout = self._layout
        features = {
            "input_word_ids": layout.ids,
            "permutation_rank": tf.where(layout.is_context, 0, 1),
            "target_positions": targets,
        }
        attentions = [block.attention for block in self._model.encoder.blocks]
        weights = [kernel for each in attentions for kernel in (each.key_kernel, each.value_kernel)]
        kernels = HeadRecorder(self._kernels, weights)
        encoded = self._model.encoder(
            features, training=False, query_only=True, in_blocks=layout.in_blocks, kernels=kernels
        )
        keys, values = kernels.heads[::2], kernels.heads[1::2]
        batch, width = shape_of(layout.ids)
        room = self.candidates * (shape_of(layout.order)[1] - 1)  # nothing follows the last token
        visible = tf.pad(layout.is_context, [[0, 0], [0, room]])
        cache = Cache(
            keys=tuple(
                tf.pad(tf.linalg.matrix_transpose(heads), [[0, 0], [0, 0], [0, 0], [0, room]])
                for heads in keys
            ),
            values=tuple(tf.pad(heads, [[0, 0], [0, 0], [0, room], [0, 0]]) for heads in values),
            positions=tf.tile(tf.range(width + room)[None], [batch, 1]),
            visible=tf.tile(visible[:, None], [1, self.candidates, 1]),
            used=tf.convert_to_tensor(width),
        )
        return self._logits(encoded["query_output"]), cache

    def step(
        self, cache: Cache, tokens: tf.Tensor, positions: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, Cache]:
        """Reads the tokens [B, C] written last at positions [B, C], and predicts targets from all.

        Targets are positions [B, C, P] int32 (-1: empty). Returns their logits [B, C, P, V] float32,
        meaningless for empty slots, and the cache.
        """
        batch, candidates, num_targets = shape_of(targets)
        d_model = self._mask_embedding.shape[0]
        slot, cache = cache.used, cache.take_slots(positions)
        context = self._context(cache, tf.concat([positions[:, :, None], targets], axis=2))

        content = tf.gather(self._word_embedding, tokens)[:, :, None]
        query = tf.broadcast_to(self._mask_embedding, [batch, candidates, num_targets, d_model])
        rows = tf.concat([content, query], axis=2)  # [B, C, 1 + P, D]
        all_rows = [batch, candidates * (1 + num_targets), d_model]

        all_keys, all_values = [], []
        for layer, keys, values in zip(self._layers, cache.keys, cache.values):
            content = tf.reshape(rows, [batch, candidates, 1 + num_targets, d_model])[:, :, 0]
            all_keys.append(put(keys, layer.keys(content), slot, 3, self._xla))
            all_values.append(put(values, layer.values(content), slot, 2, self._xla))
            rows = layer.step(tf.reshape(rows, all_rows), all_keys[-1], all_values[-1], context)
        queries = tf.reshape(rows, [batch, candidates, 1 + num_targets, d_model])[:, :, 1:]
        return self._logits(queries), cache._replace(keys=tuple(all_keys), values=tuple(all_values))

    def _logits(self, queries: tf.Tensor) -> tf.Tensor:
        """Scores every piece for each target: [..., D] to [..., V] float32."""
        *shape, d_model = shape_of(queries)
        rows = tf.reshape(queries, [-1, d_model])
        logits = tf.cast(tf.matmul(rows, self._word_embedding, transpose_b=True), tf.float32) + self._lm_bias
        return tf.reshape(logits, [*shape, self._lm_bias.shape[0]])

    def _context(self, cache: Cache, positions: tf.Tensor) -> AttentionContext:
        """What rows at positions [B, C, 1 + P] see: all that their candidate does."""
        slot_positions = cache.positions[:, None, None, :]
        row_positions = positions[:, :, :, None]
        visible = tf.repeat(
            cache.visible[:, :, None, :], positions.shape[2] or tf.shape(positions)[2], axis=2
        )
        if self._left_to_right:
            visible &= slot_positions <= row_positions
        batch, candidates, rows, slots = shape_of(visible)
        shape = [batch, candidates * rows, slots]  # [B, Q, S]
        num_distances = shape_of(self._layers[0].position_keys)[2]
        # Distances that do not occur belong to hidden slots; their entries may be anything.
        entries = tf.clip_by_value(
            self._layout.length - (row_positions - slot_positions), 0, num_distances - 1
        )
        visible = tf.reshape(visible, shape)[:, None]
        return AttentionContext(
            query_len=self._layout.length,
            key_len=slots,
            bias=attention_bias(visible),
            distance_entries=tf.reshape(entries, shape),
            query_mask=tf.cast(tf.reduce_any(visible, axis=-1, keepdims=True), self._mask_embedding.dtype),
        )

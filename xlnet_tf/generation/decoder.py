"""Two-stream decoding, a token at a time, with the content stream's keys and values kept.

To predict the token at a position, the query stream attends, in each layer, to the content states of what
comes earlier in the factorization order. Those never change: a content token sees what precedes it in the
order, and itself; keys and values are computed once. A step takes, for each candidate text, one row of
the content stream, the token written last, and one of the query stream for each target through all layers.

A key's slot in the cache says nothing of its position: positions, and who sees which slot, are data. That
makes all orders alike, and lets the candidates of a text share one cache: each sees the context and slots of
its own, and to continue another candidate is to see what that one saw.

Shapes: B batch, T tokens, P targets, C candidates of a text, S slots, Q rows of a step for a text, N heads, H
head size, D model, V vocabulary, R relative positions.

Source: paper section 2.3 (two streams).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
from typing_extensions import Self

from xlnet_tf.errors import UserError
from xlnet_tf.generation.cached_layer import CachedLayer, HeadRecorder, put, shape_of
from xlnet_tf.generation.layout import TextLayout, check_others_are_seen
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.layers.masks import AttentionContext, attention_bias
from xlnet_tf.layers.positions import RelativePositions
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer


class Cache(NamedTuple):
    """What a step knows of the tokens before it."""

    # keys, values: each layer's, [B, N, H, S] and [B, N, S, H]
    keys: tuple[tf.Tensor, ...]
    values: tuple[tf.Tensor, ...]
    positions: tf.Tensor  # [B, S] int32, of the tokens in the slots
    visible: tf.Tensor  # [B, C, S] bool, the slots that each candidate sees
    used: tf.Tensor  # number of used slots, a scalar; the slots after them are free

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


# Writes fresh keys or values into cached ones: (cached, fresh, first slot, axis of the slots).
Put = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, int], tf.Tensor]


class DecodingStep:
    """A step for all candidates; `positions` are each layer's, of a text of `length` positions.

    It reads the model's weights when it is created, not in the loop over steps, where casts and 8-bit weights
    then cost nothing: create it in the graph that uses it.
    """

    def __init__(
        self,
        model: XLNetPretrainer,
        positions: Sequence[RelativePositions],
        length: int | tf.Tensor,
        put: Put,
    ):
        encoder = model.encoder
        self._left_to_right = encoder.attention_type == "uni"
        self._length = length
        self._put = put
        self.kernels = kernels_lib.current(training=False)
        self._layers = [
            CachedLayer.read(block, its_positions, encoder.compute_dtype, self.kernels)
            for block, its_positions in zip(encoder.blocks, positions, strict=True)
        ]
        self._word_embedding = tf.cast(tf.convert_to_tensor(encoder.word_embedding), encoder.compute_dtype)
        self._mask_embedding = tf.cast(encoder.mask_embedding, encoder.compute_dtype)
        self._lm_bias = tf.cast(model.lm_bias, tf.float32)

    def __call__(
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
            all_keys.append(self._put(keys, layer.keys(content), slot, 3))
            all_values.append(self._put(values, layer.values(content), slot, 2))
            rows = layer.step(tf.reshape(rows, all_rows), all_keys[-1], all_values[-1], context)
        queries = tf.reshape(rows, [batch, candidates, 1 + num_targets, d_model])[:, :, 1:]
        return self.logits(queries), cache._replace(keys=tuple(all_keys), values=tuple(all_values))

    def logits(self, queries: tf.Tensor) -> tf.Tensor:
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
        entries = tf.clip_by_value(self._length - (row_positions - slot_positions), 0, num_distances - 1)
        visible = tf.reshape(visible, shape)[:, None]
        return AttentionContext(
            query_len=self._length,
            key_len=slots,
            bias=attention_bias(visible),
            distance_entries=tf.reshape(entries, shape),
            query_mask=tf.cast(tf.reduce_any(visible, axis=-1, keepdims=True), self._mask_embedding.dtype),
        )


def check_decodes(encoder: XLNetEncoder) -> None:
    """Raises UserError if an encoder's tokens see what decoding does not."""
    check_others_are_seen(encoder)
    if encoder.uniform_when_blind:
        raise UserError(
            "the encoder has uniform_when_blind=True, which lets a token that nothing precedes see "
            "padding; expected False: give this option when loading the model."
        )


class CachedDecoder:
    """Predicts tokens in any factorization order, for C candidates of each text."""

    def __init__(self, model: XLNetPretrainer, layout: TextLayout, candidates: int = 1, xla: bool = False):
        encoder = model.encoder
        check_decodes(encoder)
        self._model = model
        self._layout = layout
        self.candidates = candidates
        direction = "uni" if layout.forward or encoder.attention_type == "uni" else "bi"
        positions = RelativePositions.of_step(
            encoder.config.d_model, layout.length, layout.length, direction, encoder.clamp_len
        )
        self.step = DecodingStep(
            model, [positions] * len(encoder.blocks), layout.length, functools.partial(put, xla=xla)
        )

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
        encoded, keys, values = read_context(self._model, features, self.step.kernels, layout.in_blocks)
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
        return self.step.logits(encoded), cache


def read_context(
    model: XLNetPretrainer,
    features: Mapping[str, tf.Tensor],
    kernels: kernels_lib.Kernels,
    in_blocks: bool = False,
) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
    """Returns the query stream [B, P, D], and each layer's keys and values of the content, [B, N, T, H]."""
    attentions = [block.attention for block in model.encoder.blocks]
    weights = [kernel for each in attentions for kernel in (each.key_kernel, each.value_kernel)]
    recorder = HeadRecorder(kernels, weights)
    encoded = model.encoder(features, training=False, query_only=True, in_blocks=in_blocks, kernels=recorder)
    return encoded["query_output"], recorder.heads[::2], recorder.heads[1::2]

"""The parts of a layer that a decoder reads once for all steps: its cast weights and position keys.

Keys are cached transposed, [B, N, H, S]: with a step's few queries, the product takes a CPU 0.57 of the time.

Shapes: B texts, C candidates of a text, S slots, N heads, H head size, D model, R relative positions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from typing_extensions import Self

from xlnet_tf.layers.attention import attend
from xlnet_tf.layers.block import BlockWeights, TransformerBlock
from xlnet_tf.layers.kernels import Kernels
from xlnet_tf.layers.masks import AttentionContext
from xlnet_tf.layers.positions import RelativePositions


class CachedLayer(NamedTuple):
    """A block of the encoder, with its weights in the compute type."""

    block: TransformerBlock
    weights: BlockWeights
    position_keys: tf.Tensor
    kernels: Kernels

    @classmethod
    def read(
        cls, block: TransformerBlock, positions: RelativePositions, dtype: tf.DType, kernels: Kernels
    ) -> Self:
        """Reads a block's weights, and projects the encoded distances by them."""

        def cast(weights):
            return type(weights)(*(tf.cast(tf.convert_to_tensor(weight), dtype) for weight in weights))

        own = block.block_weights
        weights = own._replace(attention=cast(own.attention), feed_forward=cast(own.feed_forward))
        position_keys = kernels.project_positions(positions, weights.attention.position, dtype)
        return cls(block, weights, position_keys, kernels)

    def keys(self, content: tf.Tensor) -> tf.Tensor:
        """Projects the content stream [B, C, D] to keys [B, N, H, C]."""
        return tf.linalg.matrix_transpose(self.kernels.project_heads(content, self.weights.attention.key))

    def values(self, content: tf.Tensor) -> tf.Tensor:
        """Projects the content stream [B, C, D] to values [B, N, C, H]."""
        return self.kernels.project_heads(content, self.weights.attention.value)

    def step(self, rows: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, context: AttentionContext):
        """Computes the block for rows of both streams [B, Q, D]; keys [B, N, H, S], values [B, N, S, H]."""
        keys = tf.linalg.matrix_transpose(keys)  # TensorFlow's graph optimizer makes it part of the product
        weights, kernels = self.weights, self.kernels
        attended = attend(weights.attention, rows, keys, values, self.position_keys, context, kernels)
        return self.block.finish(weights, rows, attended, kernels=kernels)


class HeadRecorder:
    """Kernels that record the heads projected by given weights, which they recognise by identity."""

    def __init__(self, kernels: Kernels, weights: Sequence[tf.Variable]):
        self._kernels = kernels
        self._heads: dict[int, tf.Tensor | None] = {id(each): None for each in weights}

    def __getattr__(self, name: str):
        return getattr(self._kernels, name)

    def project_heads(self, stream: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        heads = self._kernels.project_heads(stream, weights)
        if id(weights) in self._heads:
            self._heads[id(weights)] = heads
        return heads

    @property
    def heads(self) -> list[tf.Tensor]:
        """The projections of the stream, [B, N, T, H], one for each of the weights."""
        return [*self._heads.values()]


def shape_of(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Returns a tensor's sizes, static ones as integers."""
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(tensor.shape)]


def put(cached: tf.Tensor, fresh: tf.Tensor, slot: tf.Tensor, axis: int, xla: bool) -> tf.Tensor:
    """Writes `fresh`, C slots from `slot` on, into cached keys (axis 3) or values (axis 2), in place.

    XLA has no strided update at a slot that is not constant, so there it selects.
    """
    if xla:
        owner = tf.range(shape_of(cached)[axis]) - slot
        last = shape_of(fresh)[axis] - 1
        is_fresh = (owner >= 0) & (owner <= last)
        if axis == 2:
            is_fresh = is_fresh[:, None]
        return tf.where(is_fresh, tf.gather(fresh, tf.clip_by_value(owner, 0, last), axis=axis), cached)
    begin = [slot if index == axis else 0 for index in range(4)]
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=cached, begin=begin, end=tf.stack(begin) + tf.shape(fresh), strides=[1, 1, 1, 1], value=fresh
    )

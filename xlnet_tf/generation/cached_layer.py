"""What a decoder reads of a layer once, for all its steps: its weights, cast, and its position keys.

Shapes: B texts, C candidates of a text, S slots, N heads, H head size, D model, R relative positions.
"""

from typing import NamedTuple

import tensorflow as tf
from typing_extensions import Self

from xlnet_tf.layers.attention import AttentionWeights, attend
from xlnet_tf.layers.block import FeedForwardWeights, TransformerBlock
from xlnet_tf.layers.kernels import Kernels
from xlnet_tf.layers.masks import AttentionContext
from xlnet_tf.layers.positions import RelativePositions


class CachedLayer(NamedTuple):
    """A block of the encoder, with weights in the type that it computes in.

    Attributes:
        block: computes with them.
        attention, feed_forward: its weights.
        position_keys: [1, N, R, H], the distances, projected.
        kernels: of the device.
    """

    block: TransformerBlock
    attention: AttentionWeights
    feed_forward: FeedForwardWeights
    position_keys: tf.Tensor
    kernels: Kernels

    @classmethod
    def read(
        cls, block: TransformerBlock, positions: RelativePositions, dtype: tf.DType, kernels: Kernels
    ) -> Self:
        """Reads a block's weights, and projects the encoded distances by them."""

        def cast(weights):
            return type(weights)(*(tf.cast(tf.convert_to_tensor(weight), dtype) for weight in weights))

        attention = cast(block.attention.attention_weights)
        position_keys = kernels.project_positions(positions, attention.position, dtype)
        feed_forward = cast(block.feed_forward.feed_forward_weights)
        return cls(block, attention, feed_forward, position_keys, kernels)

    def keys(self, content: tf.Tensor) -> tf.Tensor:
        """Projects the content stream [B, C, D] to keys [B, N, C, H]."""
        return self.kernels.project_heads(content, self.attention.key)

    def values(self, content: tf.Tensor) -> tf.Tensor:
        """Projects the content stream [B, C, D] to values [B, N, C, H]."""
        return self.kernels.project_heads(content, self.attention.value)

    def step(self, rows: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, context: AttentionContext):
        """Computes the block for rows of both streams [B, Q, D], with keys and values [B, N, S, H]."""
        attended = attend(self.attention, rows, keys, values, self.position_keys, context, self.kernels)
        return self.block.finish(rows, attended, kernels=self.kernels, feed_forward_weights=self.feed_forward)


def shape_of(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Returns a tensor's sizes, static ones as integers."""
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(tensor.shape)]


def put(cached: tf.Tensor, fresh: tf.Tensor, slot: tf.Tensor, xla: bool) -> tf.Tensor:
    """Writes keys or values into a cache, in place.

    Args:
        cached: [B, N, S, H].
        fresh: [B, N, C, H].
        slot: the first of the C slots to take.
        xla: whether XLA compiles the graph. It knows no strided update at a slot that is not constant; and
            TensorFlow's scatter, which it does know, copies all of the cache where TensorFlow itself runs it.
    """
    batch, heads, candidates, _ = shape_of(fresh)
    if xla:
        slots = slot + tf.range(candidates)
        texts, heads, slots = tf.meshgrid(tf.range(batch), tf.range(heads), slots, indexing="ij")
        return tf.tensor_scatter_nd_update(cached, tf.stack([texts, heads, slots], axis=-1), fresh)
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=cached,
        begin=[0, 0, slot, 0],
        end=[0, 0, slot + candidates, 0],
        strides=[1, 1, 1, 1],
        value=fresh,
        begin_mask=0b1011,  # all of the other axes
        end_mask=0b1011,
    )

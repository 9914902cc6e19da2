"""One layer of the network as a step of decoding computes it: few rows, keys and values at hand.

Shapes: B texts, Q rows of a text, S slots, N heads, H head size, D model, R relative positions.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import tensorflow as tf

from xlnet_tf.layers.block import ACTIVATIONS, TransformerBlock
from xlnet_tf.layers.kernels.matmul import matmul_heads
from xlnet_tf.layers.masks import MASKED_SCORE


class View(NamedTuple):
    """What the rows of a step see; the same in all layers.

    Attributes:
        visible: [B, 1, Q, S] bool.
        distances: [B, N, Q, S] int32, for each row and slot the number of their distance among the R.
        sighted: [B, 1, Q, 1] float, 0 for rows that see nothing, and get no attention.
    """

    visible: tf.Tensor
    distances: tf.Tensor
    sighted: tf.Tensor


class CachedLayer(NamedTuple):
    """The weights of a block, cast and shaped once for all steps; rows of a step come as [B * Q, D].

    Attributes:
        query, key, value, output: [D, N * H] kernels of attention.
        content_bias, position_bias: [N, 1, H].
        position_keys: [N, R, H], the distances, projected.
        attention_norm, feed_forward_norm: gamma and beta [D].
        inner, outer: kernel and bias of the feed-forward network.
        activation: of its hidden layer.
        epsilon: of the norms.
    """

    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    output: tf.Tensor
    content_bias: tf.Tensor
    position_bias: tf.Tensor
    position_keys: tf.Tensor
    attention_norm: tuple[tf.Tensor, tf.Tensor]
    feed_forward_norm: tuple[tf.Tensor, tf.Tensor]
    inner: tuple[tf.Tensor, tf.Tensor]
    outer: tuple[tf.Tensor, tf.Tensor]
    activation: Callable[[tf.Tensor], tf.Tensor]
    epsilon: float

    @classmethod
    def read(cls, block: TransformerBlock, distances: tf.Tensor) -> Self:
        """Reads a block's weights, and projects the encoded distances [R, D] by them.

        The segments' part is left out: all is of one segment, so that it adds the same to all scores of a
        row, which no softmax tells.
        """
        attention, feed_forward = block.attention, block.feed_forward
        heads = [block.config.n_head, block.config.d_head]

        def cast(weight):
            return tf.cast(tf.convert_to_tensor(weight), distances.dtype)

        def flat(kernel):
            return tf.reshape(cast(kernel), [block.config.d_model, -1])

        position_keys = tf.reshape(tf.matmul(distances, flat(attention.position_kernel)), [-1, *heads])
        return cls(
            query=flat(attention.query_kernel),
            key=flat(attention.key_kernel),
            value=flat(attention.value_kernel),
            output=flat(attention.output_kernel),
            content_bias=cast(attention.biases.content_bias)[:, None],
            position_bias=cast(attention.biases.position_bias)[:, None],
            position_keys=tf.transpose(position_keys, [1, 0, 2]),
            attention_norm=_norm(block.attention_norm),
            feed_forward_norm=_norm(block.feed_forward_norm),
            inner=(cast(feed_forward.inner.kernel), cast(feed_forward.inner.bias)),
            outer=(cast(feed_forward.outer.kernel), cast(feed_forward.outer.bias)),
            activation=ACTIVATIONS[block.config.ff_activation],
            epsilon=block.attention_norm.epsilon,
        )

    def heads(self, rows: tf.Tensor, kernel: tf.Tensor, shape: list) -> tf.Tensor:
        """Projects rows [..., D] to heads: `shape` + [N, H]."""
        return tf.reshape(tf.matmul(rows, kernel), [*shape, *self.content_bias.shape[::2]])

    def finish(self, rows: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, view: View) -> tf.Tensor:
        """Attends to keys and values [B, N, S, H], then computes the rest of the block; [B * Q, D]."""
        batch, _, row_count, _ = shape_of(view.distances)
        attended = self._attend(self.heads(rows, self.query, [batch, row_count]), keys, values, view)
        attended = tf.reshape(attended, [batch * row_count, self.output.shape[1]])
        rows = self._normalize(rows + tf.matmul(attended, self.output, transpose_b=True), self.attention_norm)
        kernel, bias = self.inner
        hidden = self.activation(tf.nn.bias_add(tf.matmul(rows, kernel), bias))
        kernel, bias = self.outer
        return self._normalize(rows + tf.nn.bias_add(tf.matmul(hidden, kernel), bias), self.feed_forward_norm)

    def _attend(self, queries, keys, values, view: View) -> tf.Tensor:
        """Attention of queries [B, Q, N, H]: the same."""
        scale = tf.cast(queries.shape[3] ** -0.5, queries.dtype)
        queries = tf.transpose(queries, [0, 2, 1, 3]) * scale
        scores = tf.matmul(queries + self.content_bias * scale, keys, transpose_b=True)  # [B, N, Q, S]
        by_distance = matmul_heads(
            queries + self.position_bias * scale, self.position_keys[None], transpose_b=True
        )
        scores += tf.gather(by_distance, view.distances, batch_dims=3)
        scores = tf.where(view.visible, tf.cast(scores, tf.float32), MASKED_SCORE)
        probabilities = tf.cast(tf.nn.softmax(scores), queries.dtype) * view.sighted
        return tf.transpose(tf.matmul(probabilities, values), [0, 2, 1, 3])

    def _normalize(self, rows: tf.Tensor, norm: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        values = tf.cast(rows, tf.float32)
        mean, variance = tf.nn.moments(values, axes=[1], keepdims=True)
        gamma, beta = norm
        return tf.cast((values - mean) * (tf.math.rsqrt(variance + self.epsilon) * gamma) + beta, rows.dtype)


def _norm(layer) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta)


def shape_of(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Returns a tensor's sizes, static ones as integers."""
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(tensor.shape)]


def put(cached: tf.Tensor, fresh: tf.Tensor, slot: tf.Tensor, xla: bool) -> tf.Tensor:
    """Writes keys or values into a cache, in place.

    Args:
        cached: [B, N, S, H].
        fresh: [B, C, N, H].
        slot: the first of the C slots to take.
        xla: whether XLA compiles the graph. It knows no strided update at a place that is not constant; and
            TensorFlow's scatter, which it does know, copies all of the cache where TensorFlow itself runs it.
    """
    batch, candidates, heads, _ = shape_of(fresh)
    if xla:
        slots = slot + tf.range(candidates)
        texts, slots, heads = tf.meshgrid(tf.range(batch), slots, tf.range(heads), indexing="ij")
        return tf.tensor_scatter_nd_update(cached, tf.stack([texts, heads, slots], axis=-1), fresh)
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=cached,
        begin=[0, 0, slot, 0],
        end=[0, 0, slot + candidates, 0],
        strides=[1, 1, 1, 1],
        value=tf.transpose(fresh, [0, 2, 1, 3]),
        begin_mask=0b1011,  # all of the other axes
        end_mask=0b1011,
    )

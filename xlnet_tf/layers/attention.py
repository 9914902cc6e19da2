"""Two-stream relative attention.

Shapes: B batch, T tokens, P targets, M memory, K = M + T keys, R relative positions, N heads, H head
size, D model. Q stands for a stream's queries: T for the content stream, P for the query stream.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from xlnet_tf.layers import hardware
from xlnet_tf.layers import positions as positions_lib
from xlnet_tf.layers.chunks import in_chunks
from xlnet_tf.layers.dropout import kept, seed_at
from xlnet_tf.layers.fused import compiled, linear, shared
from xlnet_tf.layers.initializers import normal
from xlnet_tf.layers.products import multiply_by_head, multiply_by_weights
from xlnet_tf.layers.rotation import Turn

# Far below any score, and exact zeros after the float32 softmax.
_HIDDEN = -1e30


class StreamView(NamedTuple):
    """What one stream's queries see; the same in all layers, so it is built once per step.

    Attributes:
        mask: [B or 1, 1, Q, K] float32, added to the scores (see hide); None when every query sees every key.
        other_segment: [B, 1, Q, K] float32, 1 where query and key lie in different segments; None
            without relative segment encoding.
        positions: [B, Q] int32, the queries' places in the segment; None for 0..T-1.
        turn: their angles, where positions are rotated.
        sighted: [B, 1, Q, 1] float, 0 for queries whose attention is to be zero; None for none.
    """

    mask: tf.Tensor | None = None
    other_segment: tf.Tensor | None = None
    positions: tf.Tensor | None = None
    turn: Turn | None = None
    sighted: tf.Tensor | None = None


class BlockedView(NamedTuple):
    """What a stream sees that is too long for all scores to be in memory at once.

    Attributes:
        size: int32 scalar, queries that are scored at a time.
        view: returns the StreamView, with positions, of the queries from the first number up to the second.
    """

    size: tf.Tensor
    view: Callable[[tf.Tensor, tf.Tensor], StreamView]


class AttentionBiases(tf_keras.layers.Layer):
    """The learned constants that stand for the query's own position: u, v of Transformer-XL, and s.

    Args:
        n_head: N.
        d_head: H.
        initializer_range: standard deviation of their normal initializer.

    Source: Transformer-XL section 3.3 (u, v); XLNet section 2.5 (b, here segment_bias).
    """

    def __init__(self, n_head: int, d_head: int, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.n_head = n_head
        self.d_head = d_head
        self.initializer_range = initializer_range

    def build(self, input_shape=None):
        shape = [self.n_head, self.d_head]
        for name in ("content_bias", "position_bias", "segment_bias"):
            setattr(self, name, self.add_weight(name, shape, initializer=normal(self.initializer_range)))
        super().build(input_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "n_head": self.n_head,
            "d_head": self.d_head,
            "initializer_range": self.initializer_range,
        }


class RelativeAttention(tf_keras.layers.Layer):
    """Multi-head attention with relative positions and relative segments, for one or two streams.

    Both streams take their keys and values from the memory and the content stream, and share all
    weights. The query stream's queries know a target's position but not its content.

    Args:
        d_model: D.
        n_head: N.
        d_head: H; N * H need not be D.
        attention_dropout: rate on the attention probabilities.
        initializer_range: standard deviation of the normal initializer.
        tied_biases: the AttentionBiases of all layers, or None for own ones (`untie_r`).

    Call args:
        content: h [B, T, D].
        query: g [B, P, D], or None with one stream.
        memory: [B, M, D] of this layer, or None.
        positions: the step's RelativePositions.
        content_view, query_view: StreamView of each stream, or BlockedView.
        seed: [2] int32 for dropout, None outside training.

    Returns:
        The attention of each stream, projected back to D: [B, T, D] and [B, P, D] (or None). With
        `content_view=None` the content stream only serves keys and values, and its result is None.

    Source: paper sections 2.2 (two streams), 2.3 (recurrence), 2.5 (segments).
    """

    def __init__(
        self,
        d_model: int,
        n_head: int,
        d_head: int,
        attention_dropout: float = 0.1,
        initializer_range: float = 0.02,
        tied_biases: AttentionBiases | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.n_head = n_head
        self.d_head = d_head
        self.attention_dropout = attention_dropout
        self.initializer_range = initializer_range
        self.biases = tied_biases or AttentionBiases(n_head, d_head, initializer_range, name="biases")

    def build(self, input_shape=None):
        kernel = [self.d_model, self.n_head, self.d_head]
        for name in ("query", "key", "value", "position", "output"):
            weight = self.add_weight(
                f"{name}/kernel",
                kernel,
                initializer=normal(self.initializer_range),
                experimental_autocast=False,  # multiply_by_weights casts them
            )
            setattr(self, f"{name}_kernel", weight)
        self.segment_embedding = self.add_weight(
            "segment_embedding", [2, self.n_head, self.d_head], initializer=normal(self.initializer_range)
        )
        if not self.biases.built:
            self.biases.build()
        super().build(input_shape)

    def call(self, content, query, memory, positions, content_view, query_view=None, seed=None):
        source = content if memory is None else tf.concat([tf.cast(memory, content.dtype), content], axis=1)
        keys = self._heads(source, self.key_kernel)  # [B, N, K, H]
        values = self._heads(source, self.value_kernel)
        position_keys = None if positions.rotation else self.position_keys(positions)

        def attend(stream, view, place):
            if isinstance(view, BlockedView):
                return attend_in_blocks(stream, view, place)
            queries = self._heads(stream, self.query_kernel)
            query_len = content.shape[1] or tf.shape(content)[1]
            scores = self._scores(
                queries, keys, position_keys, view, query_len, positions.rotation, training=seed is not None
            )
            attended = sum_by_softmax(scores, values, self.attention_dropout, seed_at(seed, place))
            if view.sighted is not None:
                attended *= tf.cast(view.sighted, attended.dtype)
            return self._join_heads(attended)

        def attend_in_blocks(stream, view, place):
            def block(begin, end):
                attended = attend(stream[:, begin:end], view.view(begin, end), place)
                return {"attended": tf.transpose(attended, [1, 0, 2])}  # in_chunks joins the first axis

            spec = tf.TensorSpec([None, None, self.d_model], stream.dtype)
            count = tf.shape(stream)[1]
            return tf.transpose(in_chunks(block, count, view.size, {"attended": spec})["attended"], [1, 0, 2])

        content_attention = None if content_view is None else attend(content, content_view, place=0)
        query_attention = None if query is None else attend(query, query_view, place=1)
        return content_attention, query_attention

    def _heads(self, vectors, kernel) -> tf.Tensor:
        """Projects [B, Q, D] to [B, N, Q, H], as a product of two matrices: on CPUs faster than an einsum."""
        width = self.n_head * self.d_head
        rows = tf.reshape(vectors, [-1, vectors.shape[-1]])
        rows = multiply_by_weights(rows, tf.reshape(kernel, [-1, width]))
        length = vectors.shape[1] or tf.shape(vectors)[1]
        return tf.transpose(tf.reshape(rows, [-1, length, self.n_head, self.d_head]), [0, 2, 1, 3])

    def _join_heads(self, attended) -> tf.Tensor:
        """Projects [B, N, Q, H] back to [B, Q, D]."""
        width = self.n_head * self.d_head
        rows = tf.reshape(tf.transpose(attended, [0, 2, 1, 3]), [-1, width])
        rows = multiply_by_weights(rows, tf.reshape(self.output_kernel, [-1, width]), transpose_b=True)
        return tf.reshape(rows, [-1, attended.shape[2] or tf.shape(attended)[2], self.d_model])

    def position_keys(self, positions: positions_lib.RelativePositions) -> tf.Tensor:
        """Projects the encoded distances, once for all rows: [1, N, R, H], [B, N, R, H] with directions."""
        if positions.keys is not None:
            return self._cast(positions.keys)[None]
        encoded = tf.stack([positions.sine, positions.cosine])  # [2, K + 1, D/2]
        kernels = tf.reshape(self.position_kernel, [2, self.d_model // 2, self.n_head * self.d_head])
        projected = tf.matmul(self._cast(encoded), self._cast(kernels))
        projected = tf.reshape(projected, [2, -1, self.n_head, self.d_head])
        odd, even = tf.split(tf.transpose(projected, [0, 2, 1, 3]), 2)  # [1, N, K + 1, H] each
        if positions.direction is not None:
            odd *= self._cast(positions.direction)[:, None, None, None]
        # The rows fall to distance 0; those just before it, down to 1, are negated to lie ahead.
        first = (odd.shape[2] or tf.shape(odd)[2]) - 1 - positions.ahead
        negated = tf.slice(even - odd, [0, 0, first, 0], [-1, -1, positions.ahead, -1])
        return tf.concat([even + odd, tf.reverse(negated, [2])], axis=2)

    def _scores(
        self, queries, keys, position_keys, view: StreamView, query_len, rotation=None, training=False
    ) -> tf.Tensor:
        """Sums the terms of a pair's score: content, position and segment; [B, N, Q, K] float32.

        What all keys of a query have in common is left out, as no softmax tells it.
        """
        scale = tf.cast(self.d_head**-0.5, queries.dtype)
        biases = [self.biases.content_bias, self.biases.position_bias]
        if view.other_segment is not None:
            biases.append(self.biases.segment_bias)
        # Repeated for all rows, and then for all queries: the gradient's sums are faster in this order.
        rows = [tf.shape(queries)[0], self.n_head, 1, self.d_head]
        about_content, about_position, *about_segment = [
            part + tf.broadcast_to(self._cast(bias)[:, None, :] * scale, rows)
            for part, bias in zip(shared(queries * scale, len(biases)), biases)
        ]

        key_len = keys.shape[2] or tf.shape(keys)[2]
        by_content = tf.matmul(about_content, keys, transpose_b=True)
        in_order = rotation is None and view.positions is None
        if in_order:
            parts = positions_lib.by_windows(about_position, position_keys, key_len)
            by_position = multiply_by_head(*parts, transpose_b=True)  # [B, N * G, Q / G, R]
        elif rotation is not None:
            by_position = rotation.scores(about_position, self.position_kernel, view.turn)
        else:
            by_distance = multiply_by_head(about_position, position_keys, transpose_b=True)  # [B, N, Q, R]
            by_position = positions_lib.shift_by_position(by_distance, view.positions, query_len, key_len)
        terms = [by_content, by_position]
        if view.other_segment is not None:
            same, other = tf.unstack(self._cast(self.segment_embedding))  # [N, H]
            difference = (other - same)[None, :, :, None]  # [1, N, H, 1]
            terms.append(multiply_by_head(*about_segment, difference))  # [B, N, Q, 1]
        total = _total_in_training if training else _total
        return total([view.other_segment, view.mask], terms, shift=in_order)

    def _cast(self, tensor) -> tf.Tensor:
        return tf.cast(tensor, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "n_head": self.n_head,
            "d_head": self.d_head,
            "attention_dropout": self.attention_dropout,
            "initializer_range": self.initializer_range,
        }


def _total(constants, terms, *, shift: bool) -> tf.Tensor:
    """Adds the terms of the scores, and the mask: [B, N, Q, K] float32.

    Args:
        constants: StreamView's other_segment and mask, or None.
        terms: by content [B, N, Q, K]; by position, likewise, or by distance, for G groups of queries
            [B, N * G, Q / G, R]; and where there is an other_segment, what a pair of two segments gets
            [B, N, Q, 1].
        shift: whether the second term is by distance, and to be shifted by row.
    """
    other_segment, mask = constants
    by_content, by_position, *if_other = terms
    if shift:
        shape = [size or tf.shape(by_content)[axis] for axis, size in enumerate(by_content.shape)]
        by_position = tf.reshape(positions_lib.shift_by_row(by_position, shape[3]), shape)
    scores = tf.cast(by_content + by_position, tf.float32)
    for term in if_other:
        scores += other_segment * tf.cast(term, tf.float32)
    return scores if mask is None else scores + mask


_total_in_training = linear(_total)


def hide(visible: tf.Tensor) -> tf.Tensor:
    """Turns what is visible, bool, into what hides the rest once it is added to the scores.

    Where nothing is visible, the scores are all alike, so that softmax gives all keys the same.
    """
    return tf.where(visible, 0.0, _HIDDEN)


def sum_by_softmax(scores: tf.Tensor, values: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Sums values, weighted by the softmax of their scores.

    Args:
        scores: [B, N, Q, K] float32.
        values: [B, N, K, H].
        rate: of dropout on the weights.
        seed: [2] int32, or None outside training.

    Returns:
        [B, N, Q, H].
    """
    is_kept = None
    if seed is not None and rate:
        is_kept = kept(tf.shape(scores), rate, seed)
        values /= tf.cast(1 - rate, values.dtype)  # for the weights, which are many more

    # TensorFlow's own gradient would take three more passes over all of the weights. What each key's part
    # is compared with, sum_j w_j (v_j . g), is the result . g.
    @tf.custom_gradient
    def weighted_sum(scores, values):
        probabilities = tf.cast(tf.nn.softmax(scores), values.dtype)
        weights = probabilities
        if is_kept is not None and hardware.kind() == "tpu":
            # One array is kept for the gradient, not two: the sign tells what was dropped.
            signed = tf.where(is_kept, probabilities, -probabilities)
            weights, probabilities = tf.nn.relu(signed), tf.abs(signed)
        elif is_kept is not None:
            weights = _kept_alone(probabilities, is_kept)
        result = tf.matmul(weights, values)

        def gradient(upstream):
            of_keys = tf.matmul(upstream, values, transpose_b=True)
            of_all = tf.reduce_sum(tf.cast(upstream * result, tf.float32), axis=-1, keepdims=True)
            of_scores = _of_scores(of_all, of_keys, weights, probabilities)
            return of_scores, tf.matmul(weights, upstream, transpose_a=True)

        return result, gradient

    return weighted_sum(scores, values)


@compiled
def _kept_alone(probabilities, is_kept):
    return tf.where(is_kept, probabilities, tf.zeros([], probabilities.dtype))


@compiled
def _of_scores(of_all, of_keys, weights, probabilities):
    return tf.cast(of_keys * weights, tf.float32) - of_all * tf.cast(probabilities, tf.float32)

"""The head of extractive question answering: where in the text the answer is, and whether it is there."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf.layers.base import layer_norm, normal
from xlnet_tf.layers.kernels import current
from xlnet_tf.layers.masks import MASKED_SCORE
from xlnet_tf.layers.summary import last_position
from xlnet_tf.models import compiling
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.head import XLNetHead, build_layer, logits_layer
from xlnet_tf.models.loading import Pretrained, Source


@tf_keras.utils.register_keras_serializable("xlnet_tf", "XLNetSpan")  # the name in saved files
class XLNetQuestionAnswering(XLNetHead):
    """Finds an answer's first token, then its last one given the first, and whether there is an answer.

    Args:
        start_top: K, candidate beginnings in prediction.
        end_top: E, candidate ends for each beginning.
        segment_len, memory_gradient: how long texts are read (see XLNetHead).

    Call args: the encoder's features, and
        answer_mask: [B, T], 1 where an answer may begin or end: in the passage, and on CLS, which stands for
            no answer.
        start_position: [B] integers, in training: the true beginning, on which the end depends.

    Returns: a dict of float32 tensors and int32 indices; everything outside answer_mask scores -1e30.
      With start_position:
        start_logits: [B, T].
        end_logits: [B, T], given the true beginning.
        no_answer_logits: [B]; the higher, the less likely there is an answer.
      Without:
        start_top_log_probs, start_top_index: [B, K], the likeliest beginnings, best first.
        end_top_log_probs, end_top_index: [B, K, E], the likeliest ends for each of them.
        no_answer_logits: [B].
      K and E are at most T; where T is not known to the graph, it is at least K and E.

    Source: run_squad.py, function_builder.py get_qa_outputs.
    """

    def __init__(
        self, encoder: XLNetEncoder, *, start_top: int = 5, end_top: int = 5, name: str = "span", **kwargs
    ):
        super().__init__(encoder, name=name, **kwargs)
        self.start_top = start_top
        self.end_top = end_top
        d_model, stddev = encoder.config.d_model, encoder.initializer_range
        self.start_logits = logits_layer(1, encoder)
        self.end_hidden = _DenseOfPair(d_model, stddev, name="hidden")
        self.end_norm = layer_norm("norm")
        self.end_logits = logits_layer(1, encoder)
        self.answerable_hidden = _DenseOfPair(d_model, stddev, name="hidden")
        self.answerable_logits = logits_layer(1, encoder, use_bias=False)

    @classmethod
    def from_pretrained(cls, path: Source, **options) -> Self:
        """Builds the model of a checkpoint: with its head, or with a new one on pretrained weights."""
        source = Pretrained.open(path)
        return cls.load(source, source.find_head("span"), options)

    def build_head(self, d_model: int):
        build_layer(self.start_logits, [None, None, d_model], "span/start")
        for layer in (self.end_hidden, self.end_norm, self.end_logits):
            build_layer(layer, [None, None, None, d_model], "span/end")
        for layer in (self.answerable_hidden, self.answerable_logits):
            build_layer(layer, [None, d_model], "span/answerable")

    def head_outputs(self):
        spans = dict.fromkeys(("start_logits", "end_logits"), compiling.CLASSES)
        return {**spans, "no_answer_logits": compiling.LABELS}

    def call(self, features: Mapping[str, Any], training=None):
        tokens, seed = self.encode(features, training)
        allowed = tf.cast(features["answer_mask"], tf.bool)
        start_logits = tf.where(allowed, _scores(self.start_logits, tokens), MASKED_SCORE)  # [B, T]
        kernels = current(training=seed is not None)
        no_answer_logits = self._no_answer(features, tokens, start_logits, seed, kernels)
        if "start_position" in features:
            starts = tf.cast(features["start_position"], tf.int32)[:, None]
            return {
                "start_logits": start_logits,
                "end_logits": tf.squeeze(self._end_logits(tokens, starts, allowed, kernels), axis=1),
                "no_answer_logits": no_answer_logits,
            }
        length = tokens.shape[1] or max(self.start_top, self.end_top)  # of any length: of at least that
        start_log_probs, starts = tf.nn.top_k(tf.nn.log_softmax(start_logits), min(self.start_top, length))
        end_log_probs = tf.nn.log_softmax(self._end_logits(tokens, starts, allowed, kernels))  # [B, K, T]
        end_log_probs, ends = tf.nn.top_k(end_log_probs, min(self.end_top, length))
        return {
            "start_top_log_probs": start_log_probs,
            "start_top_index": starts,
            "end_top_log_probs": end_log_probs,
            "end_top_index": ends,
            "no_answer_logits": no_answer_logits,
        }

    def _end_logits(self, tokens, starts, allowed, kernels) -> tf.Tensor:
        """Scores every token as the end of answers that begin at `starts` [B, K]; [B, K, T]."""
        start_tokens = tf.gather(tokens, starts, batch_dims=1)  # [B, K, D]
        hidden = self.end_hidden(tokens[:, None], start_tokens[:, :, None], kernels=kernels)
        hidden = self.end_norm(hidden)  # [B, K, T, D]
        return tf.where(allowed[:, None], _scores(self.end_logits, hidden), MASKED_SCORE)

    def _no_answer(self, features, tokens, start_logits, seed, kernels) -> tf.Tensor:
        """Judges by CLS and by the mean beginning; [B]."""
        mask = features.get("input_mask")
        if mask is None:
            mask = tf.ones(tf.shape(tokens)[:2], tf.bool)
        cls = tf.gather(tokens, last_position(mask), batch_dims=1)  # [B, D]
        start_probabilities = tf.cast(tf.nn.softmax(start_logits), tokens.dtype)
        start = tf.linalg.matvec(tokens, start_probabilities, transpose_a=True)
        hidden = self.answerable_hidden(start, cls, kernels=kernels)
        hidden = kernels.dropout(hidden, self.encoder.dropout, seed)
        return _scores(self.answerable_logits, hidden)

    def get_config(self):
        return {**super().get_config(), "start_top": self.start_top, "end_top": self.end_top}


XLNetSpan = XLNetQuestionAnswering  # its earlier name


class _DenseOfPair(tf_keras.layers.Layer):
    """A dense layer with tanh over two vectors [..., D] as if they were concatenated."""

    def __init__(self, d_model: int, initializer_range: float, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.initializer_range = initializer_range

    def build(self, input_shape=None):
        kernel = [2 * self.d_model, self.d_model]
        self.kernel = self.add_weight("kernel", kernel, initializer=normal(self.initializer_range))
        self.bias = self.add_weight("bias", [self.d_model], initializer="zeros")
        super().build(input_shape)

    def call(self, first, second, *, kernels):
        upper, lower = tf.split(tf.cast(self.kernel, first.dtype), 2, axis=0)
        # Products of matrices: the gradient of an einsum with "..." keeps all rows apart, D x D for each.
        rows = kernels.dense(tf.reshape(first, [-1, self.d_model]), upper, self.bias)
        return tf.tanh(tf.reshape(rows, tf.shape(first)) + tf.tensordot(second, lower, 1))


def _scores(layer: tf_keras.layers.Layer, vectors: tf.Tensor) -> tf.Tensor:
    return tf.squeeze(layer(tf.cast(vectors, tf.float32)), axis=-1)


def span_losses(outputs: Mapping[str, tf.Tensor], features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The loss of each row in nats, [B] float32: the mean of start and end, and half of answerability.

    Features are start_position and end_position [B], both on CLS where there is no answer, and is_impossible
    [B], 1 where there is none. Without is_impossible the last part is left out.
    """

    def cross_entropy(logits, positions):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(positions, tf.int32), logits)

    span = cross_entropy(outputs["start_logits"], features["start_position"])
    span += cross_entropy(outputs["end_logits"], features["end_position"])
    if "is_impossible" not in features:
        return 0.5 * span
    no_answer = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(features["is_impossible"], tf.float32), logits=outputs["no_answer_logits"]
    )
    return 0.5 * span + 0.5 * no_answer

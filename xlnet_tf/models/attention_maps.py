"""The attention probabilities of all layers and heads, for inspection."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from xlnet_tf.layers.kernels.reference import ReferenceKernels
from xlnet_tf.layers.masks import MASKED_SCORE
from xlnet_tf.models.encoder import XLNetEncoder


class AttentionMaps(NamedTuple):
    """How much each query attends to each key.

    Attributes:
        content: [L, B, N, T, K] float32, of the content stream; a query's sum to 1.
        query: [L, B, N, Q, K], of the query stream, Q being P, or T with `target_mask`; 0 for a query that
            may see nothing. None with one stream.
    """

    content: tf.Tensor
    query: tf.Tensor | None


class _RecordingKernels(ReferenceKernels):
    """Keeps the probabilities that values are summed by, in the order of the calls."""

    def __init__(self):
        self.probabilities: list[tf.Tensor] = []

    def softmax_sum(self, scores, values, rate, seed):
        visible = scores > MASKED_SCORE / 2  # the bias swallows every score
        self.probabilities.append(tf.where(visible, tf.nn.softmax(scores), 0.0))
        return super().softmax_sum(scores, values, rate, seed)


def attention_maps(encoder: XLNetEncoder, features: Mapping[str, Any]) -> AttentionMaps:
    """Computes what `encoder(features)` does, and keeps the attention probabilities of each layer.

    All probabilities are in memory at once: use it for short texts. `output_positions` is ignored, as the
    maps cover all tokens.

    Source: paper section 2.3; the probabilities times the values of a layer are its attention.
    """
    kernels = _RecordingKernels()
    features = {name: value for name, value in features.items() if name != "output_positions"}
    outputs = encoder(features, training=False, kernels=kernels)
    recorded = kernels.probabilities
    if "query_output" not in outputs:
        return AttentionMaps(tf.stack(recorded), None)
    return AttentionMaps(
        tf.stack(recorded[0::2]), tf.stack(recorded[1::2])
    )  # each layer: content, then query

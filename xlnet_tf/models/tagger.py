"""The head that labels each token."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.head import XLNetHead, build_layer, logits_layer


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class XLNetTagger(XLNetHead):
    """Scores the labels of every token.

    Args:
        encoder: the body.
        num_labels: C.
        segment_len: tokens of the segments in which long texts are read; 0 reads them at once (see read).

    Call args: the encoder's features.

    Returns: logits [B, T, C] float32; those of padding mean nothing.
    """

    def __init__(
        self,
        encoder: XLNetEncoder,
        num_labels: int,
        *,
        segment_len: int = 0,
        name: str = "tagger",
        **kwargs,
    ):
        super().__init__(encoder, segment_len, name=name, **kwargs)
        self.num_labels = num_labels
        self.dense = logits_layer(num_labels, encoder)

    def build_head(self, d_model: int):
        build_layer(self.dense, [None, None, d_model], "tagging")

    def call(self, features: Mapping[str, Any], training=None):
        sequence_output, _ = self.encode(features, training)
        return self.dense(tf.cast(sequence_output, tf.float32))

    def get_config(self):
        return {**super().get_config(), "num_labels": self.num_labels, "segment_len": self.segment_len}

"""The head that labels each token."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf.models import compiling
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.head import XLNetHead, build_layer, class_names, logits_layer
from xlnet_tf.models.loading import Pretrained, Source


@tf_keras.utils.register_keras_serializable("xlnet_tf", "XLNetTagger")  # the name in saved files
class XLNetTokenClassifier(XLNetHead):
    """Scores the labels of every token.

    Args:
        num_labels: C.
        labels: the classes' names; default: their numbers.
        segment_len, memory_gradient: how long texts are read (see XLNetHead).

    Call args: the encoder's features.

    Returns: logits [B, T, C] float32; those of padding are meaningless.
    """

    def __init__(
        self,
        encoder: XLNetEncoder,
        num_labels: int,
        *,
        labels: Sequence[str] | None = None,
        name: str = "tagger",
        **kwargs,
    ):
        super().__init__(encoder, name=name, **kwargs)
        self.num_labels = num_labels
        self.dense = logits_layer(num_labels, encoder)
        self.labels = class_names(labels, num_labels)

    @classmethod
    def from_pretrained(cls, path: Source, labels: Sequence[str] | None = None, **options) -> Self:
        """Builds the tagger of a checkpoint: with its head, or with a new one on pretrained weights.

        For `labels` see XLNetClassifier.from_pretrained.
        """
        source = Pretrained.open(path)
        head = source.find_labeled_head("tagging", labels)
        return cls.load(source, head, options, len(head.labels), labels=head.labels)

    def build_head(self, d_model: int):
        build_layer(self.dense, [None, None, d_model], "tagging")

    def head_outputs(self):
        return compiling.CLASSES

    def call(self, features: Mapping[str, Any], training=None):
        sequence_output, _ = self.encode(features, training)
        return self.dense(tf.cast(sequence_output, tf.float32))

    def get_config(self):
        return {**super().get_config(), "num_labels": self.num_labels, "labels": list(self.labels)}


XLNetTagger = XLNetTokenClassifier  # its earlier name

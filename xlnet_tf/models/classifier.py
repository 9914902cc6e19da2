"""Heads that predict a text's class or its value on a scale."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf.errors import UserError
from xlnet_tf.models import compiling
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.head import PooledHead, class_names
from xlnet_tf.models.loading import Pretrained, Source


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class XLNetClassifier(PooledHead):
    """Scores the classes of a text or of a pair of texts.

    Args:
        num_labels: C.
        head_name: the task in the names of the head's variables, as in the original's: "imdb", "sts-b".
        summary, projection, pool_padding: how the tokens become one vector (see SequenceSummary).
        segment_len, memory_gradient: how long texts are read (see XLNetHead).
        labels: the classes' names; default: their numbers.
        multi_label: whether a text may have any number of them.

    Call args: a dict of input_word_ids, input_mask, input_type_ids [B, T] and dropout_seed, as the encoder
        takes them; other features are ignored.

    Returns: logits [B, C] float32; their softmax (with multi_label, their sigmoid) are the probabilities.

    Example:
        >>> model = XLNetClassifier.from_pretrained("xlnet_cased_L-12_H-768_A-12", labels=["no", "yes"])
        >>> model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> model.fit(tokenizer(texts), np.array([model.labels.index(label) for label in answers]))

    Source: paper appendix A.4; function_builder.py get_classification_loss.
    """

    def __init__(
        self,
        encoder: XLNetEncoder,
        num_labels: int,
        head_name: str = "task",
        *,
        labels: Sequence[str] | None = None,
        multi_label: bool = False,
        name: str = "classifier",
        **kwargs,
    ):
        super().__init__(encoder, _head_scope("classification", head_name), num_labels, name=name, **kwargs)
        self.num_labels = num_labels
        self.head_name = head_name
        self.multi_label = multi_label
        self.labels = class_names(labels, num_labels)

    @classmethod
    def from_pretrained(
        cls, path: Source, labels: Sequence[str] | None = None, *, head_name: str | None = None, **options
    ) -> Self:
        """Builds the classifier of a checkpoint: with its head, or with a new one on pretrained weights.

        Args:
            path: a run (its best weights, if kept), or files of the original or Hugging Face (see
                checkpoints.open_checkpoint).
            labels: the classes' names. A new head needs them; for one of the checkpoint's they may be left
                out, or must agree with it.
            head_name: which head, if the checkpoint has several; one that it lacks is new.
            **options: options of this class and XLNetEncoder: dropout, summary, ...
        """
        source = Pretrained.open(path)
        head = source.find_labeled_head("classification", labels, head_name)
        multi_label = not head.new and source.card.multi_label
        from_checkpoint = {"labels": head.labels, "multi_label": multi_label}
        return cls.load(source, head, options, len(head.labels), head.task, **from_checkpoint)

    def head_outputs(self):
        return compiling.LABELS if self.multi_label else compiling.CLASSES

    def call(self, features: Mapping[str, Any], training=None):
        return self.pooled_logits(features, training)

    def get_config(self):
        return {
            **super().get_config(),
            "num_labels": self.num_labels,
            "head_name": self.head_name,
            "labels": list(self.labels),
            "multi_label": self.multi_label,
        }


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class XLNetRegressor(PooledHead):
    """Predicts a number for a text or a pair of texts: [B] float32.

    The arguments, also of a call, are those of XLNetClassifier, without num_labels, labels and multi_label.

    Source: function_builder.py get_regression_loss.
    """

    def __init__(self, encoder: XLNetEncoder, head_name: str = "task", *, name: str = "regressor", **kwargs):
        super().__init__(encoder, _head_scope("regression", head_name), 1, name=name, **kwargs)
        self.head_name = head_name

    @classmethod
    def from_pretrained(cls, path: Source, *, head_name: str | None = None, **options) -> Self:
        """Builds the regressor of a checkpoint, as XLNetClassifier.from_pretrained does."""
        source = Pretrained.open(path)
        head = source.find_head("regression", head_name)
        return cls.load(source, head, options, head.task)

    def head_outputs(self):
        return compiling.VALUES

    def call(self, features: Mapping[str, Any], training=None):
        return tf.squeeze(self.pooled_logits(features, training), axis=-1)

    def get_config(self):
        return {**super().get_config(), "head_name": self.head_name}


def classification_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The cross entropy in nats, with a softmax over the classes; also for choices and for tagged tokens.

    `logits` are [..., C], `labels` [...] integers from 0; the unknown label -1 has no loss and no gradient.
    """
    chosen = tf.one_hot(labels, logits.shape[-1])
    return -tf.reduce_sum(chosen * tf.nn.log_softmax(logits), axis=-1)


def regression_losses(predictions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """The squared error of predictions and targets [B]: [B] float32."""
    return tf.math.squared_difference(predictions, tf.cast(targets, tf.float32))


def _head_scope(head_kind: str, head_name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.\-]+", head_name):
        raise UserError(
            f"head_name is {head_name!r}; expected letters, digits, '_', '-' and '.', because variables are "
            "named after it."
        )
    return f"{head_kind}_{head_name}"

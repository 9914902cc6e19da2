"""Permutation language modelling: predict each target from what precedes it in the factorization order."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf.layers import kernels
from xlnet_tf.layers.base import normal
from xlnet_tf.models import compiling
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.head import EncoderModel
from xlnet_tf.models.loading import Pretrained, Source


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class XLNetPretrainer(EncoderModel):
    """The encoder with a language-model head that shares the word embedding.

    Args:
        next_sentence: adds a classifier on CLS that predicts whether B follows A (the paper's ablation).

    Call args: the encoder's features, with a query stream; the targets are tokens of the input itself.

    Returns: a dict of
        logits: [B, P, V] float32, scores of every piece for every target.
        target_ids: [B, P] int32, the pieces to predict.
        target_weights: [B, P] float32, 1 for a target and 0 for an empty slot.
        next_sentence_logits: [B, 2] float32, with next_sentence only; class 1 is "B follows A".
        next_memory, next_memory_mask: as the encoder gives them.
      With full-length query streams (`target_mask`), P is T.

    Source: paper section 2.3 (eq. 4); modeling.py lm_loss.
    """

    def __init__(
        self, encoder: XLNetEncoder, next_sentence: bool = False, name: str = "pretrainer", **kwargs
    ):
        super().__init__(encoder, name=name, **kwargs)
        self.next_sentence = next_sentence
        if next_sentence:
            self.next_sentence_head = tf_keras.layers.Dense(
                2,
                kernel_initializer=normal(encoder.initializer_range),
                dtype=tf.float32,
                name="next_sentence",
            )

    @classmethod
    def from_pretrained(cls, path: Source, **options) -> Self:
        """Builds the model of a pretrained checkpoint; `options` are XLNetEncoder's."""
        source = Pretrained.open(path)
        [settings] = source.options(options, XLNetEncoder)
        model = cls(XLNetEncoder(source.config, **settings))
        source.load_into(model)
        return model

    def build_head(self, d_model: int):
        self.lm_bias = self.add_weight("lm_bias", [self.encoder.config.n_token], initializer="zeros")
        if self.next_sentence:
            with tf.name_scope(self.next_sentence_head.name):
                self.next_sentence_head.build([None, d_model])

    def head_outputs(self):
        return dict.fromkeys(("logits", "next_sentence_logits"), compiling.CLASSES)

    def call(self, features: Mapping[str, Any], training=None):
        encoded = self.encoder(features, training=training, query_only=not self.next_sentence)
        outputs = {"logits": self.logits(encoded["query_output"]), **_targets(features)}
        if self.next_sentence:
            cls_output = encoded["sequence_output"][:, -1]  # CLS ends every pretraining segment
            outputs["next_sentence_logits"] = self.next_sentence_head(tf.cast(cls_output, tf.float32))
        if "next_memory" in encoded:
            outputs["next_memory"] = encoded["next_memory"]
            outputs["next_memory_mask"] = encoded["next_memory_mask"]
        return outputs

    def logits(self, query_output: tf.Tensor) -> tf.Tensor:
        """Scores every piece for each target: query_output [B, P, D] to [B, P, V] float32."""
        batch_shape = tf.shape(query_output)[0]
        rows = tf.reshape(query_output, [-1, self.encoder.config.d_model])  # [B * P, D]
        logits = kernels.current(training=False).matmul(rows, self.encoder.word_embedding, transpose_b=True)
        logits = tf.cast(logits, tf.float32) + tf.cast(self.lm_bias, tf.float32)
        targets = query_output.shape[1] or tf.shape(query_output)[1]
        return tf.reshape(logits, [batch_shape, targets, self.encoder.config.n_token])

    def get_config(self):
        return {**super().get_config(), "next_sentence": self.next_sentence}


def _targets(features) -> dict[str, tf.Tensor]:
    """Reads the targets off the input: in permutation language modelling a target is its own token."""
    word_ids = tf.cast(features["input_word_ids"], tf.int32)
    if "target_positions" not in features:
        return {"target_ids": word_ids, "target_weights": tf.cast(features["target_mask"], tf.float32)}
    positions = tf.cast(features["target_positions"], tf.int32)
    return {
        "target_ids": tf.gather(word_ids, tf.maximum(positions, 0), batch_dims=1),
        "target_weights": tf.cast(positions >= 0, tf.float32),
    }


def target_losses(outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The negative log-likelihood of each target in nats, [B, P] float32; 0 for empty slots."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(outputs["target_ids"], outputs["logits"])
    return losses * outputs["target_weights"]

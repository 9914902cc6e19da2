"""Heads that score several texts against each other: the options of a question, passages for a query."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf.errors import UserError
from xlnet_tf.models import compiling
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.head import PooledHead
from xlnet_tf.models.loading import Pretrained, Source
from xlnet_tf.models.reading import token_features


@tf_keras.utils.register_keras_serializable("xlnet_tf", "XLNetChoice")  # the name in saved files
class XLNetMultipleChoice(PooledHead):
    """Scores each of C texts by itself; the C scores of a row compete in the loss.

    Args:
        num_choices: C.
        summary, projection, pool_padding: how the tokens become one vector (see SequenceSummary).
        segment_len, memory_gradient: how long texts are read (see XLNetHead).

    Call args: the encoder's features, [B, C * T]: the texts of a row one after the other.

    Returns: logits [B, C] float32.

    Source: paper appendix A.4 (RACE); function_builder.py get_race_loss.
    """

    HEAD_SCOPE = "choice"

    def __init__(self, encoder: XLNetEncoder, num_choices: int, *, name: str | None = None, **kwargs):
        super().__init__(encoder, self.HEAD_SCOPE, 1, name=name or self.HEAD_SCOPE, **kwargs)
        self.num_choices = num_choices

    @classmethod
    def from_pretrained(cls, path: Source, num_choices: int | None = None, **options) -> Self:
        """Builds the model of a checkpoint: with its head, or with a new one on pretrained weights.

        C may differ from that of the training, which is its default.
        """
        source = Pretrained.open(path)
        head = source.find_head(cls.HEAD_SCOPE)
        if num_choices is None and not head.new:
            num_choices = source.card.settings.get("num_choices")
        if num_choices is None:
            others = source.other_heads() if head.new else ""
            reason = (
                f"has no head {head.scope}{others}" if others else "does not say how many choices a row has"
            )
            raise UserError(f"{source.checkpoint.path} {reason}: give num_choices, such as num_choices=4.")
        return cls.load(source, head, options, num_choices)

    def head_outputs(self):
        return compiling.CLASSES

    def call(self, features: Mapping[str, Any], training=None):
        ids = features["input_word_ids"]
        width = ids.shape[1]
        if width is not None and width % self.num_choices:
            raise UserError(
                f"rows are {width} tokens wide; expected a multiple of {self.num_choices}, the number of "
                "choices."
            )
        texts = {
            name: tf.reshape(value, [-1, (width or tf.shape(ids)[1]) // self.num_choices])  # [B * C, T]
            for name, value in token_features(features).items()
        }
        scores = self.pooled_logits({**features, **texts}, training)
        return tf.reshape(scores, [-1, self.num_choices])

    def get_config(self):
        return {**super().get_config(), "num_choices": self.num_choices}


@tf_keras.utils.register_keras_serializable("xlnet_tf")
class XLNetRanker(XLNetMultipleChoice):
    """Scores passages or replies for a query; higher is better.

    Arguments, calls and results are those of XLNetMultipleChoice, whose choices are the candidates of a row.
    """

    HEAD_SCOPE = "ranking"

    def head_outputs(self):
        return compiling.SCORES


XLNetChoice = XLNetMultipleChoice  # its earlier name

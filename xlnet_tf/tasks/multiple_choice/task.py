"""Multiple choice: which of C options answers a question about a text (RACE)."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from xlnet_tf.models.multiple_choice import XLNetMultipleChoice
from xlnet_tf.records.examples import option_letters
from xlnet_tf.records.layout import Column
from xlnet_tf.serving.answers.signatures import LOWEST
from xlnet_tf.task_registry import Sizes
from xlnet_tf.tasks.finetuning import FinetuningTask, register
from xlnet_tf.tasks.metrics.calibration import Probabilities
from xlnet_tf.tasks.model_config import SummaryModelConfig
from xlnet_tf.tasks.multiple_choice.files import mistakes, write_files
from xlnet_tf.tasks.multiple_choice.metrics import accuracies
from xlnet_tf.tasks.scoring import is_constant, row_weights
from xlnet_tf.tasks.settings import FinetuningConfig
from xlnet_tf.training.task import Ratio, weighted

EXPERIMENT = "xlnet/multiple_choice"


@dataclasses.dataclass
class MultipleChoiceConfig(FinetuningConfig):
    """Settings of multiple choice."""

    model: SummaryModelConfig = dataclasses.field(default_factory=SummaryModelConfig)


@register(EXPERIMENT, MultipleChoiceConfig)
class MultipleChoiceTask(FinetuningTask):
    """Scores each option by itself; the scores of a question's options compete in a softmax."""

    TASK = "multiple_choice"
    SETTINGS = {"num_choices": int, "max_qa_len": int, "answered": bool}
    ANSWERED = "answered"
    MUST_AGREE = ("num_choices",)

    def build_head(self, encoder):
        options = self.task_config.model.head_options()
        return XLNetMultipleChoice(encoder, self.example_set.sequences, **options)

    def build_metrics(self, training: bool = True):
        return [Ratio("loss"), Ratio("accuracy")]

    def sums(self, features, outputs):
        outputs = _of_options(features, outputs)
        labels = tf.cast(features["label"], tf.int32)
        # Without an answer, as in a test set, there is no loss.
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), outputs)
        is_highest = tf.cast(outputs == tf.reduce_max(outputs, axis=-1, keepdims=True), tf.float32)
        right = tf.one_hot(labels, outputs.shape[-1])
        hits = tf.reduce_sum(is_highest * right, axis=-1) / tf.reduce_sum(is_highest, axis=-1)
        return weighted(row_weights(features), loss=losses, accuracy=hits)

    def predictions(self, features, outputs):
        outputs = _of_options(features, outputs)
        return {"probabilities": tf.nn.softmax(outputs), "logits": outputs, "label": features["label"]}

    def has_collapsed(self, examples, predictions):
        """Compares the options of each question."""
        values, is_option = predictions["probabilities"], predictions["logits"] > LOWEST
        return is_constant(np.where(is_option, values, values.max(axis=1, keepdims=True)), axis=1)

    def units(self, examples, predictions):
        return {**predictions, "level": np.array([row["level"] for row in examples.sidecar()])}

    def score_units(self, units):
        return accuracies(units["probabilities"], units["label"], units["level"])

    def probabilities(self, examples, predictions):
        values = predictions["probabilities"]
        letters = option_letters(values.shape[1])
        targets = np.arange(len(letters)) == predictions["label"][:, None]
        return Probabilities(values, targets, letters, True, predictions["logits"])

    def find_mistakes(self, examples, predictions):
        return mistakes(examples.sidecar(), predictions["label"], predictions["probabilities"])

    def write_predictions(self, examples, predictions, folder):
        return write_files(examples.sidecar(), predictions["probabilities"], folder)


def _of_options(features, logits: tf.Tensor) -> tf.Tensor:
    """Returns the logits [B, C], the lowest number where a question has no such option, only padding."""
    if "input_mask" not in features:
        return logits
    mask = tf.reshape(features["input_mask"], [*tf.unstack(tf.shape(logits)), -1])
    return tf.where(tf.reduce_any(mask > 0, axis=-1), logits, LOWEST)


def synthetic(sizes: Sizes) -> tuple[list[Column], dict[str, Any]]:
    """Returns the columns and settings of questions with options without content."""
    settings = {"num_choices": sizes.sequences, "max_qa_len": sizes.seq_len // 2, "answered": True}
    return [Column("label", "int32", None)], settings

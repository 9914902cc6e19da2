"""Tagging words: named entities and whatever else is written as BIO tags; parts of speech and other tags."""

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import scipy.special
import tensorflow as tf

from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.records.layout import Column
from xlnet_tf.task_registry import Sizes
from xlnet_tf.tasks import compatibility
from xlnet_tf.tasks.finetuning import FinetuningTask, register
from xlnet_tf.tasks.label_losses import LabelConfig, training_losses
from xlnet_tf.tasks.metrics.calibration import Probabilities
from xlnet_tf.tasks.model_config import SegmentsModelConfig
from xlnet_tf.tasks.scoring import row_weights
from xlnet_tf.tasks.tagging import files as tagging_predictions
from xlnet_tf.tasks.tagging import metrics as tagging_metrics
from xlnet_tf.text.words import mark_entities
from xlnet_tf.training.task import Ratio, weighted

EXPERIMENT = "xlnet/tagging"


@dataclasses.dataclass
class TaggingConfig(LabelConfig):
    """Settings of tagging."""

    model: SegmentsModelConfig = dataclasses.field(default_factory=SegmentsModelConfig)


@register(EXPERIMENT, TaggingConfig)
class TaggingTask(FinetuningTask):
    """Predicts the tag of each word from its first piece.

    Entities are scored by F1; tags that mark no entities, such as parts of speech, by their accuracy.
    """

    TASK = "tagging"
    BEST_METRIC = "f1"
    SETTINGS = {"labels": list[str], "tagged": bool, "stride": int}
    ANSWERED = "tagged"
    MUST_AGREE = ("labels",)
    TOKEN_COLUMNS = ("tags",)
    TOKEN_PREDICTIONS = ("tags", "logits")

    def check_settings(self, examples):
        super().check_settings(examples)
        compatibility.check_labels(examples, 1)
        self.task_config.check_labels(examples.settings["labels"])
        self.of_entities = mark_entities(examples.settings["labels"])
        if not self.of_entities:
            self.BEST_METRIC = "accuracy"

    def build_head(self, encoder):
        labels = self.example_set.settings["labels"]
        options = self.task_config.model.segment_options()
        return XLNetTokenClassifier(encoder, len(labels), labels=labels, **options)

    def build_metrics(self, training: bool = True):
        return [Ratio("loss"), Ratio("accuracy")]

    def counts(self, features):
        return {"loss": tf.reduce_sum(_word_weights(features))}

    def sums(self, features, outputs):
        tags, smoothing = _tags(features), self.task_config.label_smoothing
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tags, outputs)
        losses = training_losses(losses, outputs, tags, self._class_weights, smoothing)
        return self._sums(features, outputs, losses)

    def validation_sums(self, features, outputs):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(_tags(features), outputs)
        return self._sums(features, outputs, losses)

    def _sums(self, features, outputs, losses):
        hits = tf.cast(_best(outputs) == _tags(features), tf.float32)
        return weighted(_word_weights(features), loss=losses, accuracy=hits)

    @functools.cached_property
    def _class_weights(self) -> np.ndarray | None:
        labels, tags = self.example_set.settings["labels"], self.example_set.column("tags")
        return self.task_config.weights(labels, np.bincount(tags[tags >= 0], minlength=len(labels)))

    def predictions(self, features, outputs):
        tags = {"tags": _best(outputs)}
        if self.validation_set and self.has_answers(self.validation_set):
            return {**tags, "logits": outputs}  # as many numbers as labels: only where they are compared
        return tags

    def probabilities(self, examples, predictions):
        gold, labels = examples.column("tags"), examples.settings["labels"]
        logits = predictions["logits"][gold >= 0]  # [words, C]
        targets = np.arange(len(labels)) == gold[gold >= 0][:, None]
        return Probabilities(scipy.special.softmax(logits, axis=-1), targets, labels, True, logits)

    def constant_score(self, examples):
        """Returns the F1 of no entities at all, or the accuracy of the most frequent tag."""
        if self.of_entities:
            return 0.0
        tags = examples.column("tags")
        return float(np.bincount(tags[tags >= 0]).max() / (tags >= 0).sum())

    def units(self, examples, predictions):
        count = tagging_metrics.entity_counts if self.of_entities else tagging_metrics.word_counts
        return count(*_gold_and_predicted(examples, predictions))

    def score_units(self, units):
        return tagging_metrics.tag_scores(units)

    def tables(self, examples, predictions):
        table = tagging_metrics.type_table if self.of_entities else tagging_metrics.tag_table
        return table(*_gold_and_predicted(examples, predictions))

    def has_collapsed(self, examples, predictions):
        """Compares the tags of all words: one tag for all is a collapse unless it is the true one."""
        gold, predicted = _gold_and_predicted(examples, predictions)
        tags = set(itertools.chain(*predicted))
        return len(tags) == 1 and not (self.has_answers(examples) and set(itertools.chain(*gold)) == tags)

    def find_mistakes(self, examples, predictions):
        return tagging_predictions.mistakes(tagging_predictions.tagged_sentences(examples, predictions))

    def write_predictions(self, examples, predictions, folder):
        sentences = tagging_predictions.tagged_sentences(examples, predictions)
        return tagging_predictions.write_files(sentences, folder)


def _word_weights(features) -> tf.Tensor:
    """Returns 1 at the first pieces of words to predict: [B, T] float32."""
    return tf.cast(features["tags"] >= 0, tf.float32) * row_weights(features)[:, None]


def _tags(features) -> tf.Tensor:
    """Returns the number of each token's tag, 0 where it has none: int32 [B, T]."""
    return tf.maximum(tf.cast(features["tags"], tf.int32), 0)


def _best(logits: tf.Tensor) -> tf.Tensor:
    """Returns the number of the best tag of each token: int32 [B, T]."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def _gold_and_predicted(examples, predictions) -> tuple[list[list[str]], list[list[str]]]:
    sentences = tagging_predictions.tagged_sentences(examples, predictions)
    return [s.gold for s in sentences], [s.predicted for s in sentences]


def synthetic(sizes: Sizes) -> tuple[list[Column], dict[str, Any]]:
    """Returns the columns and settings of tagged texts without content."""
    labels = [str(number) for number in range(sizes.num_labels)]
    settings = {"labels": labels, "tagged": True, "stride": sizes.seq_len // 2}
    return [Column("tags", "int16", sizes.seq_len)], settings

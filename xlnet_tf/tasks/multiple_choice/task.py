"""Multiple choice: which of C options answers a question about a text (RACE)."""

import csv
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from etils import epath

from xlnet_tf import files
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice
from xlnet_tf.records.examples import option_letters
from xlnet_tf.records.layout import Column
from xlnet_tf.task_registry import Sizes
from xlnet_tf.tasks.finetuning import FinetuningTask, alike, register, row_weights
from xlnet_tf.tasks.metrics.calibration import Probabilities
from xlnet_tf.tasks.model_config import SummaryModelConfig
from xlnet_tf.tasks.settings import FinetuningConfig
from xlnet_tf.training.task import Ratio, weighted

EXPERIMENT = "xlnet/multiple_choice"
TSV_FILE, JSONL_FILE = "predictions.tsv", "predictions.jsonl"


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
    ALIKE = ("num_choices",)

    def build_head(self, encoder):
        options = self.task_config.model.head_options()
        return XLNetMultipleChoice(encoder, self.example_set.sequences, **options)

    def build_metrics(self, training: bool = True):
        return [Ratio("loss"), Ratio("accuracy")]

    def sums(self, features, outputs):
        labels = tf.cast(features["label"], tf.int32)
        # Without an answer, as in a test set, there is no loss.
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), outputs)
        is_highest = tf.cast(outputs == tf.reduce_max(outputs, axis=-1, keepdims=True), tf.float32)
        right = tf.one_hot(labels, outputs.shape[-1])
        hits = tf.reduce_sum(is_highest * right, axis=-1) / tf.reduce_sum(is_highest, axis=-1)
        return weighted(row_weights(features), loss=losses, accuracy=hits)

    def predictions(self, features, outputs):
        return {"probabilities": tf.nn.softmax(outputs), "logits": outputs, "label": features["label"]}

    def outputs_alike(self, examples, predictions):
        """Compares the options of each question."""
        return alike(predictions["probabilities"], axis=1)

    def units(self, examples, predictions):
        return {**predictions, "level": np.array([row["level"] for row in examples.sidecar()])}

    def score_units(self, units):
        return accuracies(units["probabilities"], units["label"], units["level"])

    def probabilities(self, examples, predictions):
        values = predictions["probabilities"]
        letters = option_letters(values.shape[1])
        targets = np.arange(len(letters)) == predictions["label"][:, None]
        return Probabilities(values, targets, letters, True, predictions["logits"])

    def write_predictions(self, examples, predictions, folder):
        return write_files(examples.sidecar(), predictions["probabilities"], folder)


def accuracies(probabilities: np.ndarray, labels: np.ndarray, levels: Sequence[str]) -> dict[str, float]:
    """Returns the accuracy, and that of each level that questions have.

    Where k options share the highest probability, a hit counts 1/k: the mean over all orders of the options.

    Args:
        probabilities: [questions, C].
        labels: int [questions].
        levels: of each question; empty for none.
    """
    is_highest = probabilities == probabilities.max(axis=1, keepdims=True)
    hits = is_highest[np.arange(len(labels)), labels] / is_highest.sum(axis=1)
    found = {"accuracy": float(np.mean(hits))}
    for level in sorted(set(levels) - {""}):
        found[f"accuracy_{level}"] = float(np.mean(hits[np.array(levels) == level]))
    return found


def write_files(questions, probabilities: np.ndarray, folder: epath.PathLike) -> list[str]:
    """Writes predictions.tsv (id, answer's letter, probability of each option) and predictions.jsonl.

    Args:
        questions: dicts with id, level, question and options.
        probabilities: [questions, C].
        folder: for the files.

    Returns:
        The files' paths.
    """
    folder = files.make_folder(folder)
    letters = option_letters(probabilities.shape[1])
    with files.replacing(folder / TSV_FILE) as tsv, files.replacing(folder / JSONL_FILE) as jsonl:
        table = csv.writer(tsv, delimiter="\t", lineterminator="\n")
        table.writerow(["id", "answer", *letters])
        for question, row in zip(questions, probabilities, strict=True):
            best = int(np.argmax(row))
            table.writerow([question["id"], letters[best], *(f"{p:.6f}" for p in row)])
            line = {
                **question,
                "answer": letters[best],
                "option": question["options"][best],
                "answer_text": question["options"][best],  # the old name
                "probabilities": row.tolist(),
            }
            jsonl.write(json.dumps(line, ensure_ascii=False) + "\n")
    return [str(folder / TSV_FILE), str(folder / JSONL_FILE)]


def synthetic(sizes: Sizes) -> tuple[list[Column], dict[str, Any]]:
    """Returns the columns and settings of questions with options without content."""
    settings = {"num_choices": sizes.sequences, "max_qa_len": sizes.seq_len // 2, "answered": True}
    return [Column("label", "int32", None)], settings

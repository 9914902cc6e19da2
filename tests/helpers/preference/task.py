"""How it is trained and scored: a loss over pairs in training, plain accuracy on dev."""

import dataclasses
import json
import pathlib

import numpy as np
import tensorflow as tf
from official.core import exp_factory, task_factory

from tests.helpers.preference.builder import LETTERS
from tests.helpers.preference.head import XLNetPreference
from xlnet_tf.records.layout import Column
from xlnet_tf.tasks.finetuning import FinetuningConfig, FinetuningTask, finetuning_experiment, row_weights
from xlnet_tf.tasks.model_config import EncoderModelConfig
from xlnet_tf.training.task import Ratio

EXPERIMENT = "tests/preference"


@dataclasses.dataclass
class PreferenceModelConfig(EncoderModelConfig):
    summary: str = "mean"


@dataclasses.dataclass
class PreferenceConfig(FinetuningConfig):
    model: PreferenceModelConfig = dataclasses.field(default_factory=PreferenceModelConfig)
    margin: float = 0.0


@exp_factory.register_config_factory(EXPERIMENT)
def experiment():
    return finetuning_experiment(PreferenceConfig())


@task_factory.register_task_cls(PreferenceConfig)
class PreferenceTask(FinetuningTask):
    TASK = "preference"
    SETTINGS = {"answered": bool}

    def build_head(self, encoder):
        return XLNetPreference(encoder, summary=self.task_config.model.summary)

    def build_metrics(self, training=True):
        return [Ratio("loss" if training else "hits")]

    def sums(self, features, outputs):
        weights = row_weights(features)
        sign = 1.0 - 2.0 * tf.cast(features["label"], tf.float32)
        won = sign * (outputs[:, 0] - outputs[:, 1]) - self.task_config.margin
        return {"loss": (tf.reduce_sum(weights * tf.nn.softplus(-won)), tf.reduce_sum(weights))}

    def validation_sums(self, features, outputs):
        weights = row_weights(features)
        hits = tf.cast(tf.argmax(outputs, axis=-1, output_type=tf.int32) == features["label"], tf.float32)
        return {"hits": (tf.reduce_sum(weights * hits), tf.reduce_sum(weights))}

    def predictions(self, features, outputs):
        return {"scores": outputs, "label": features["label"]}

    def score_units(self, units):
        return {"accuracy": float(np.mean(units["scores"].argmax(-1) == units["label"]))}

    def write_predictions(self, examples, predictions, folder):
        path = pathlib.Path(folder) / "preferences.jsonl"
        lines = [
            json.dumps({**row, "preferred": LETTERS[scores.argmax()], "scores": scores.tolist()})
            for row, scores in zip(examples.sidecar(), predictions["scores"], strict=True)
        ]
        path.write_text("\n".join(lines) + "\n")
        return [str(path)]


def synthetic(sizes):
    return [Column("label", "int32", None)], {"answered": True}

"""A fine-tuning task that is learned in seconds: does a text hold a certain word?"""

import dataclasses

import numpy as np
import tensorflow as tf
from official.core import exp_factory, task_factory

from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.models.classifier import XLNetClassifier, classification_losses
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.task_registry import TaskEntry
from xlnet_tf.tasks.finetuning import (
    FinetuningConfig,
    FinetuningTask,
    finetune,
    finetuning_experiment,
    row_weights,
)
from xlnet_tf.text.packing import pack
from xlnet_tf.training.task import Ratio

EXPERIMENT = "toy/finetuning"
T = 10
ENTRY = TaskEntry(
    name="toy",
    task=f"{__name__}:ToyTask",
    model="xlnet_tf.models.classifier:XLNetClassifier",
    serving="xlnet_tf.tasks.classification.serving:ClassificationModule",
    synthetic="",
    head="classification_task",
    variables=(),
)
WORD = 20  # id of the piece that makes a text positive


def make_examples(folder, tokenizer, count, seed=0, labels=("no", "yes"), task="toy") -> ExampleSet:
    """Writes `count` texts of 3 to 7 random pieces."""
    rng = np.random.default_rng(seed)
    columns = [Column("label", "int32", None)]
    kind = {"task": task, "split": folder.name, "columns": columns, "settings": {"labels": labels}}
    with ExampleWriter(folder, tokenizer=tokenizer, seq_len=T, **kind) as writer:
        for number in range(count):
            label = number % 2
            ids = rng.integers(21, 60, rng.integers(3, 8))
            ids[rng.integers(len(ids))] = WORD if label else WORD + 1
            writer.write({**pack(ids.tolist(), seq_len=T)._asdict(), "label": label}, {"id": str(number)})
    return ExampleSet.load(folder)


@dataclasses.dataclass
class ToyConfig(FinetuningConfig):
    """Nothing of its own."""


@exp_factory.register_config_factory(EXPERIMENT)
def experiment():
    params = finetuning_experiment(ToyConfig())
    model = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16}
    task = {"model": model, "train_data": {"global_batch_size": 8}, "epochs": 8.0}
    trainer = {"steps_per_loop": 4, "optimizer_config": {"learning_rate": 0.02}}
    params.override({"task": task, "trainer": trainer})
    return params


@task_factory.register_task_cls(ToyConfig)
class ToyTask(FinetuningTask):
    TASK = "toy"
    MUST_AGREE = ("labels",)

    def build_head(self, encoder):
        return XLNetClassifier(encoder, 2, summary="mean")

    def new_scopes(self):
        return ["summary", "classification_task"]

    def build_metrics(self, training=True):
        return [Ratio("loss")]

    def sums(self, features, outputs):
        weights = row_weights(features)
        losses = classification_losses(outputs, features["label"])
        return {"loss": (tf.reduce_sum(weights * losses), tf.reduce_sum(weights))}

    def predictions(self, features, outputs):
        return {"logits": outputs, "yes": outputs[:, 0] < outputs[:, 1]}

    def units(self, examples, predictions):
        return {**predictions, "label": examples.arrays()["label"]}

    def score_units(self, units):
        return {"accuracy": float((units["logits"].argmax(-1) == units["label"]).mean())}

    def write_predictions(self, examples, predictions, folder):
        return []


def strategy() -> tf.distribute.Strategy:
    """Returns one CPU; not made on import, as processes with several devices configure them first."""
    return tf.distribute.OneDeviceStrategy("CPU:0")


def settings(data, **overrides):
    """Returns the settings of a run on the sets `train` and `dev` of a folder."""
    params = experiment()
    params.task.train_data.input_path = str(data / "train")
    params.task.validation_data.input_path = str(data / "dev")
    params.override(overrides)
    return params


def run(data, model_dir, **overrides):
    """Trains, and returns the last metrics."""
    return finetune(settings(data, **overrides), ToyTask, strategy(), str(model_dir))


def weights(model_dir) -> dict[str, np.ndarray]:
    """Returns the arrays that a run or a checkpoint stands for."""
    arrays = open_checkpoint(str(model_dir)).arrays
    return {name: np.array(arrays[name]) for name in arrays.entries}

"""The interface between a task and our Trainer: its data, its sums, and its answers to a run's questions."""

import abc
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task

from xlnet_tf.training.data import Features, TaskData
from xlnet_tf.training.memory import Memory

Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]  # name -> numerator and denominator, both float32 scalars


def weighted(weights: tf.Tensor, **values: tf.Tensor) -> Sums:
    """Returns, by name, each value's weighted sum and the sum of the weights, all float32 of one shape."""
    count = tf.reduce_sum(weights)
    return {name: (tf.reduce_sum(weights * value), count) for name, value in values.items()}


class Ratio(tf_keras.metrics.Metric):
    """The quotient of two sums; a mean of means would weigh steps and replicas wrongly."""

    def __init__(self, name: str):
        super().__init__(name=name, dtype=tf.float32)
        self.numerator = self.add_weight("numerator", initializer="zeros")
        self.denominator = self.add_weight("denominator", initializer="zeros")

    def update_state(self, numerator: tf.Tensor, denominator: tf.Tensor):
        self.numerator.assign_add(numerator)
        self.denominator.assign_add(denominator)

    def result(self) -> tf.Tensor:
        """Returns the quotient, 0 before anything was added."""
        return tf.math.divide_no_nan(self.numerator, self.denominator)


class ExponentialRatio(Ratio):
    """e to the quotient: perplexity from summed losses in nats."""

    def result(self) -> tf.Tensor:
        return tf.exp(super().result())


class Task(base_task.Task):
    """A task for our Trainer. It is written for part of one replica's rows, and returns only sums.

    The objective is the sum of its losses by `loss_weights`. Each loss is the sum of `sums(...)[name]`
    divided by the sum of `counts(...)[name]`, both over the global batch.
    """

    shown_metric = "accuracy"  # of an evaluation, to show next to the loss
    early_evaluations = False  # whether to evaluate at an eighth, a quarter and a half of the first interval
    data: TaskData
    loss_weights: Mapping[str, float]
    n_layer: int  # layers of the model, for learning rates per layer

    def build_inputs(self, params, input_context=None, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of task.train_data or task.validation_data; Model Garden calls it."""
        training = params is self.task_config.train_data
        return self.data.batching(training).dataset(input_context, start_step)

    @abc.abstractmethod
    def counts(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the divisor of each loss: name -> scalar, float32."""

    @abc.abstractmethod
    def sums(self, features: Features, outputs: Features) -> Sums:
        """Returns numerator and denominator of each loss and of each metric of `build_metrics`."""

    def validation_sums(self, features: Features, outputs: Features) -> Sums:
        """Returns the same for the metrics of `build_metrics(training=False)`, and losses among them."""
        return self.sums(features, outputs)

    def dev_score(self, metrics: Mapping[str, float]) -> float:
        """Returns how good an evaluation is; higher is better."""
        return -metrics["loss"]

    def build_memory(self, rows: int) -> Memory | None:
        """Returns the memory for the rows of a replica; None if the task has none."""
        return None

    def read_memory(self, memory: Memory, features: Features) -> dict[str, tf.Tensor]:
        """Returns the model's memory inputs for this step."""
        return memory.read(features["stream_start"])

    def save_assets(self, model_dir: str):
        """Writes into the run's folder what its checkpoints need for later use."""

    def evaluation_rows(self, features: Features, outputs: Features) -> dict[str, tf.Tensor]:
        """Returns each row's values for `report`: name -> [B, ...], int or float32; empty if sums suffice."""
        return {}

    def report(self, rows: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns metrics of the whole evaluation set, given `evaluation_rows` of all steps in any order."""
        return {}

    def out_of_bounds(self, metrics: Mapping[str, float], model_dir: str) -> str:
        """Returns why a run must end after an evaluation with these metrics; "" if it need not."""
        return ""

    def report_parts(self, model_dir: str) -> Iterator[str]:
        """Yields parts of the run's page (see pages.page) that the task alone knows: data, mistakes, ..."""
        yield from ()

    def after_evaluation(
        self, model: tf_keras.Model, metrics: Mapping[str, float], step: int, model_dir: str
    ):
        """Called on the chief with an evaluation's metrics; the model has the evaluated weights."""

"""What a task is for our Trainer: its data, its sums, and what else a run asks it."""

import abc
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task

from xlnet_tf.training.memory import Memory

Features = Mapping[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]  # name -> numerator and denominator, both float32 scalars


def weighted(weights: tf.Tensor, **values: tf.Tensor) -> Sums:
    """Returns, by name, each value's weighted sum and the sum of the weights.

    Args:
        weights: float32, of any shape.
        **values: float32, of that shape.
    """
    count = tf.reduce_sum(weights)
    return {name: (tf.reduce_sum(weights * value), count) for name, value in values.items()}


class Ratio(tf_keras.metrics.Metric):
    """The quotient of two sums; a mean of means would weigh steps and replicas wrongly."""

    def __init__(self, name: str):
        super().__init__(name=name, dtype=tf.float32)
        self.numerator = self.add_weight("numerator", initializer="zeros")
        self.denominator = self.add_weight("denominator", initializer="zeros")

    def update_state(self, numerator: tf.Tensor, denominator: tf.Tensor):
        """Adds to both sums (scalars)."""
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
    """A task for our Trainer. It is written for one replica and part of its rows, and returns only sums.

    Attributes:
        loss_weights: name of a loss -> its weight in the objective. Each is the sum of `sums(...)[name]`
            divided by the sum of `counts(...)[name]`, both over the global batch.
        n_layer: layers of the model, for learning rates per layer.
        shown_metric: the metric of an evaluation that a person wants to see next to the loss.
        early_evaluations: whether to evaluate at an eighth, a quarter and a half of the first interval, too.
        replicas, accumulation_steps: into how many micro-batches a step is split; the trainer sets them.
    """

    replicas = accumulation_steps = 1

    shown_metric = "accuracy"
    early_evaluations = False
    loss_weights: Mapping[str, float]
    n_layer: int

    @abc.abstractmethod
    def build_inputs(self, params, input_context=None, start_step: int = 0) -> tf.data.Dataset:
        """Returns one host's batches of one replica each, in the order of the replicas.

        Args:
            params: task.train_data or task.validation_data.
            input_context: the tf.distribute.InputContext of the host.
            start_step: steps that were taken before; the data continues where they ended.
        """

    def read_in_graph(self, train_steps: int):
        """Called where hosts that run no Python of ours read the data: TensorFlow alone must do it."""

    @abc.abstractmethod
    def counts(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns by how much each loss is divided: name -> scalar, float32."""

    @abc.abstractmethod
    def sums(self, features: Features, outputs: Features) -> Sums:
        """Returns the losses and metrics of the model's outputs, each as numerator and denominator.

        There is one for each loss and for each metric of `build_metrics`.
        """

    def validation_sums(self, features: Features, outputs: Features) -> Sums:
        """Returns the same for an evaluation, by default of what training sums up.

        There is one for each metric of `build_metrics(training=False)`, no loss if none of them is.
        """
        return self.sums(features, outputs)

    @abc.abstractmethod
    def validation_steps(self) -> int:
        """Returns the steps that evaluate the whole of task.validation_data once."""

    def dev_set(self) -> str:
        """Returns a digest of what task.validation_data holds, wherever it lies; asked only if it is given.

        A task that does not override it does not tell dev sets apart.
        """
        return ""

    def dev_score(self, metrics: Mapping[str, float]) -> float:
        """Returns how good an evaluation is; the higher, the better."""
        return -metrics["loss"]

    def build_memory(self, rows: int) -> Memory | None:
        """Returns the memory for the rows of a replica; None for a task without."""
        return None

    def read_memory(self, memory: Memory, features: Features) -> dict[str, tf.Tensor]:
        """Returns the model's memory inputs for this step."""
        return memory.read(features["stream_start"])

    @abc.abstractmethod
    def tokens_per_step(self, length: int | None = None) -> int:
        """Returns how many tokens one training step reads, for the throughput.

        Args:
            length: that its rows are cut to; None: they are not.
        """

    def any_length(self, training: bool) -> bool:
        """Returns whether one graph can compute the rows of all steps, cut to whatever length fits them."""
        return False

    def lengths(self) -> Sequence[int | None]:
        """Returns the few lengths that rows of a training are cut to, or numbers of packed rows.

        None stands for whole rows.
        """
        return [None]

    def step_lengths(
        self, first: int, steps: int, training: bool, multiple: int | None = None
    ) -> list[int | None]:
        """Returns to how many tokens the rows of each step are cut, or how many packed rows there are.

        None: rows are whole.

        Args:
            first: step, counted from 0.
            steps: how many.
            training: whether they are of a training; else of an evaluation.
            multiple: for rows of any length: what it is a multiple of; None: it is one of `lengths`.
        """
        return [None] * steps

    def cut(self, features: Features, length: int | tf.Tensor | None, training: bool) -> Features:
        """Returns the features of rows that are cut to a length, or packed into that many.

        Args:
            features: of whole rows.
            length: of `step_lengths`; a tensor where the graph does not know it.
            training: whether they are of a training; else of an evaluation.
        """
        return features

    def save_assets(self, model_dir: str):
        """Writes into the run's folder what its checkpoints need to be used later."""

    def data_warnings(self) -> list[str]:
        """Returns what should be mended in the data before training; --dry_run shows it."""
        return []

    def data_bytes(self) -> int:
        """Returns how many bytes `check_data` reads."""
        return 0

    def check_data(self):
        """Compares all data with their checksums; raises UserError that names the damaged file and where."""

    def evaluation_rows(self, features: Features, outputs: Features) -> dict[str, tf.Tensor]:
        """Returns what the whole evaluation set's metrics need of each row: name -> [B, ...], int or float32.

        Empty where sums are enough.
        """
        return {}

    def report(self, rows: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns metrics of the whole evaluation set, given `evaluation_rows` of all steps in any order."""
        return {}

    def out_of_bounds(self, metrics: Mapping[str, float], model_dir: str) -> str:
        """Returns why a run must end after an evaluation; "" if it need not.

        Args:
            metrics: of the evaluation.
            model_dir: folder of the run, whose history has the evaluations before.
        """
        return ""

    def after_evaluation(
        self, model: tf_keras.Model, metrics: Mapping[str, float], step: int, model_dir: str
    ):
        """Called on the chief with an evaluation's metrics; the model has the weights they are of."""

    def name_rows(self, step: int, rows: Sequence[int]) -> list[str]:
        """Returns which records or examples these rows of a training step are, one line each.

        Args:
            step: counted from 0.
            rows: of the global batch.
        """
        return [f"row {row} of the batch" for row in rows]

    def data_difference(self, model_dir: str) -> list[str]:
        """Returns in what the training data differs from that of the run in model_dir, one line each."""
        return []

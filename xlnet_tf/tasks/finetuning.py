"""What all fine-tuning tasks share: data, initial weights, metrics of a whole set, the best model.

A task of its own is one head and one file (see tasks/classification/task.py): it says how to build its model,
what its loss is, what it predicts for each example, and how predictions are scored and written.
"""

import abc
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from official.core import config_definitions as cfg
from official.core import exp_factory, task_factory

from xlnet_tf import files, task_registry
from xlnet_tf.checkpoints import Checkpoint, load_into, open_checkpoint
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE
from xlnet_tf.checkpoints.model_card import BEST, PARAMS_FILE, ModelCard
from xlnet_tf.checkpoints.names import head_scope
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.reading import TOKEN_FEATURES, packed_source
from xlnet_tf.records import example_report
from xlnet_tf.records.batching import FILLER, MULTIPLE, WINDOW, Batches
from xlnet_tf.records.example_reader import ExampleTable, example_dataset
from xlnet_tf.records.examples import MANIFEST_FILE, TOKENIZER_FILE, ExampleSet
from xlnet_tf.records.manifest import settings_difference
from xlnet_tf.tasks import compatibility
from xlnet_tf.tasks.cutting import cut_rows, whole_rows
from xlnet_tf.tasks.metrics.calibration import Probabilities
from xlnet_tf.tasks.model_config import architecture_difference
from xlnet_tf.tasks.settings import (
    BATCHING,
    ExamplesConfig,
    FinetuningConfig,
    complete,
    finetuning_experiment,
)
from xlnet_tf.training.early_stopping import keep_best, read_metrics
from xlnet_tf.training.optimizer import layer_number
from xlnet_tf.training.run import check_memory, run_training
from xlnet_tf.training.task import Task

_ALIKE = 1e-4  # outputs that differ by less than this come from a model that has collapsed
UNREACHED = ": no threshold reaches it on the dev examples"  # after a shortfall of these


def register(experiment: str, config: type[FinetuningConfig]) -> Callable[[type], type]:
    """Returns a class decorator for the task of these settings; `experiment` is the name of its defaults."""
    exp_factory.register_config_factory(experiment)(lambda: finetuning_experiment(config()))
    return task_factory.register_task_cls(config)


class FinetuningTask(Task):
    """A task on a set of examples.

    Args:
        params: the settings. How texts are read, where it is not given, is filled in: as init_checkpoint has
            it, or by default.
        logging_dir, name: as Model Garden's task factory gives them.
        trained_on: the set that a run was trained on, to use its model on validation_data alone.

    Attributes:
        TASK: its name, or that of the task whose sets it reads (see task_registry).
        BEST_METRIC: of `score`; the higher, the better.
        IN_PERCENT: whether it goes to 100 instead of 1.
        SETTINGS: settings of a set that the task reads, and their types (see compatibility.check_settings).
        ANSWERED: the setting that says whether a set can be scored; "": all can.
        ALIKE: settings of the sets in which training and validation must agree.
        TOKEN_COLUMNS, POSITION_COLUMNS: columns that have a value for each token, or are the position of one.
        TOKEN_PREDICTIONS, POSITION_PREDICTIONS: predictions likewise.
        example_set: the set that says what the model is for: its labels and sizes.
        train_steps: steps of the training, where they are known.

    Raises:
        UserError: sets, settings and checkpoint do not fit together.
        FileNotFoundError: there is no such set.
    """

    TASK: ClassVar[str]
    BEST_METRIC: ClassVar[str] = "accuracy"
    IN_PERCENT: ClassVar[bool] = False
    SETTINGS: ClassVar[Mapping[str, Any]] = {}
    ANSWERED: ClassVar[str] = ""
    ALIKE: ClassVar[tuple[str, ...]] = ()
    TOKEN_COLUMNS: ClassVar[tuple[str, ...]] = ()
    POSITION_COLUMNS: ClassVar[tuple[str, ...]] = ()
    TOKEN_PREDICTIONS: ClassVar[tuple[str, ...]] = ()
    POSITION_PREDICTIONS: ClassVar[tuple[str, ...]] = ()
    loss_weights: Mapping[str, float] = {"loss": 1.0}

    def __init__(
        self,
        params: FinetuningConfig,
        logging_dir: str | None = None,
        name: str | None = None,
        trained_on: ExampleSet | None = None,
    ):
        super().__init__(params, logging_dir, name)
        if not trained_on and not params.train_data.input_path:
            raise UserError("no training examples: give --data, or --train_data, a folder of examples")
        self.example_set = trained_on or ExampleSet.load(params.train_data.input_path)
        self.validation_set = None
        if params.validation_data.input_path:
            self.validation_set = ExampleSet.load(params.validation_data.input_path)
        for examples in self.sets.values():
            if task_registry.canonical(examples.task) != self.TASK:
                raise UserError(
                    f"{examples.folder} has examples for {examples.task}: expected some for {self.TASK}"
                )
            self.check_settings(examples)
        if self.validation_set:
            compatibility.check_alike(self.example_set, self.validation_set, self.ALIKE)
        compatibility.check_segments(params.model, self.sets)
        self.xlnet_config = self._architecture()
        self.n_layer = self.xlnet_config.n_layer
        if not trained_on:
            self._check_reinit()
        self._train_table = self._validation_table = None
        self.train_steps: int | None = None

    def _architecture(self) -> XLNetConfig:
        """Returns that of init_checkpoint, if there is one, with the changes of the settings."""
        vocab_size = self.example_set.tokenizer["vocab_size"]
        base, reading = None, {}
        self._init_checkpoint: Checkpoint | None = None
        if path := self.task_config.init_checkpoint:
            try:
                self._init_checkpoint = checkpoint = open_checkpoint(path)
                reading = checkpoint.card.reading
            except (UserError, FileNotFoundError) as error:
                raise UserError(f"init_checkpoint: {error}") from error
            compatibility.check_texts(checkpoint, self.example_set)
            base = checkpoint.config
        if taken := self.task_config.model.complete_reading(reading):
            logging.warning(
                "init_checkpoint %s reads texts with %s, and so does this run; --params_override="
                "task.model.NAME=VALUE has it read otherwise",
                path,
                ", ".join(f"{name} {value}" for name, value in taken.items()),
            )
        config = self.task_config.model.architecture(vocab_size, base)
        if config.n_token != vocab_size:
            raise UserError(
                f"the model's vocabulary has {config.n_token} pieces, that of the tokenizer of "
                f"{self.example_set.folder} {vocab_size}: build the examples with the model's tokenizer"
            )
        return config

    def _check_reinit(self):
        """Raises UserError unless there are as many layers as begin anew, and they have others' weights."""
        name, layers = "task.reinit_layers (--reinit_layers)", self.task_config.reinit_layers
        if not 0 <= layers <= self.n_layer:
            raise UserError(f"{name} is {layers}: expected 0 to {self.n_layer}, the layers of the model")
        if layers and not self._init_checkpoint:
            raise UserError(
                f"{name} is {layers}, and without --init_checkpoint all layers begin with random weights: "
                "give both, or leave it out"
            )

    @property
    def sets(self) -> dict[str, ExampleSet]:
        """The sets of training and validation, the latter if there is one."""
        return {"train": self.example_set} | ({"dev": self.validation_set} if self.validation_set else {})

    @property
    def shown_metric(self) -> str:
        return self.BEST_METRIC

    def dev_set(self):
        parts = [
            *(shard["sha256"] for shard in self.validation_set.shards),
            self.validation_set.sidecar_sha256,
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def dev_score(self, metrics):
        return metrics[self.BEST_METRIC]

    @abc.abstractmethod
    def build_head(self, encoder: XLNetEncoder) -> tf_keras.Model:
        """Returns the whole model, not built yet, over an encoder that is not built either."""

    def new_scopes(self) -> list[str]:
        """Returns the scopes of the model (see names.head_scope) that a pretrained checkpoint lacks."""
        head = task_registry.of_examples(self.example_set).head
        return ["summary", "pooling", head.format(task=getattr(self, "head_name", ""))]

    def counts(self, features):
        """Returns by how much the loss is divided: by default the examples."""
        return {"loss": tf.reduce_sum(row_weights(features))}

    @abc.abstractmethod
    def predictions(self, features, outputs) -> dict[str, tf.Tensor]:
        """Returns what the model says of each row, as scores and files need it: name -> [B, ...]."""

    def units(self, examples: ExampleSet, predictions: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Returns what the metrics need of each unit: a text, question, query or sentence.

        Args:
            examples: a set with answers.
            predictions: what `predictions` gave: name -> [records, ...], in the order of the set.

        Returns:
            name -> [units, ...]. By default each record is a unit.
        """
        return predictions

    @abc.abstractmethod
    def score_units(self, units: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the task's metrics of any of a set's units, as `units` gave them."""

    def score(self, examples: ExampleSet, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the task's metrics of a whole set; see `units`."""
        return self.score_units(self.units(examples, predictions))

    def probabilities(
        self, examples: ExampleSet, predictions: Mapping[str, np.ndarray]
    ) -> Probabilities | None:
        """Returns the probabilities of a set with answers; None if the task's outputs are none."""
        return None

    @abc.abstractmethod
    def write_predictions(
        self, examples: ExampleSet, predictions: Mapping[str, np.ndarray], folder: str
    ) -> list[str]:
        """Writes the predictions for a set as files for people and scorers; returns their paths."""

    def tables(self, examples: ExampleSet, predictions: Mapping[str, np.ndarray]) -> str:
        """Returns what else a person may want to see of an evaluation."""
        return ""

    def check_settings(self, examples: ExampleSet):
        """Raises UserError unless a set's settings have what the task reads."""
        compatibility.check_settings(examples, self.SETTINGS)

    @classmethod
    def has_answers(cls, examples: ExampleSet) -> bool:
        """Returns whether a set can be scored."""
        return not cls.ANSWERED or examples.settings[cls.ANSWERED]

    def outputs_alike(self, examples: ExampleSet, predictions: Mapping[str, np.ndarray]) -> bool:
        """Returns whether the model gives the same outputs for every text."""
        outputs = [values for values in predictions.values() if values.dtype.kind == "f"]
        return bool(outputs) and all(alike(values, axis=0) for values in outputs)

    def warn_if_alike(self, examples: ExampleSet, predictions: Mapping[str, np.ndarray]):
        """Warns of a model that gives all examples of a set the same outputs."""
        if examples.records > 1 and self.outputs_alike(examples, predictions):
            logging.warning(
                "the model's scores are all alike for %s: it has collapsed or not begun to learn, and its "
                "metrics are those of chance",
                examples.folder,
            )

    def shortfall(self, metrics: Mapping[str, float]) -> str:
        """Says what the settings demand of a threshold and an evaluation's metrics lack; "" if nothing."""
        return ""

    def constant_score(self, examples: ExampleSet) -> float | None:
        """Returns BEST_METRIC of the best answer that ignores the texts; None if the task has no such."""
        return None

    def build_model(self) -> tf_keras.Model:
        model = self.build_head(self.build_encoder())
        model.build(None)
        return model

    def build_encoder(self, **options) -> XLNetEncoder:
        """Returns the encoder of the settings; options go before them."""
        model = self.task_config.model
        options = {"memory_len": getattr(model, "memory_len", 0) or self.segment_len} | options
        return XLNetEncoder(self.xlnet_config, **model.encoder_options() | options)

    def initialize(self, model: tf_keras.Model):
        """Loads `init_checkpoint`, of any format, into a new run's model; the head may be new.

        With `reinit_layers` the top layers, and all above them, keep the weights that they were built with.

        Source: Zhang et al., Revisiting Few-sample BERT Fine-tuning, 2021, section 5.
        """
        if checkpoint := self._init_checkpoint:
            new = self.new_scopes()
            if layers := self.task_config.reinit_layers:
                again = [name for name in checkpoint.arrays if self._is_above(name, self.n_layer - layers)]
                checkpoint, new = checkpoint.without(again), [*new, *again]
            compatibility.check_classes(checkpoint, self.example_set, new)
            coverage = load_into(model, checkpoint, new=new)
            logging.info("init_checkpoint %s:\n%s", checkpoint.path, coverage.table())

    def _is_above(self, name: str, layer: int) -> bool:
        """Returns whether a variable is the head's, or of a layer above this one; they count from 1."""
        return head_scope(name) in self.new_scopes() or (layer_number(name) or 0) > layer

    def build_inputs(
        self, params: ExamplesConfig, input_context=None, start_step: int = 0
    ) -> tf.data.Dataset:
        training = params is self.task_config.train_data
        context = input_context or tf.distribute.InputContext()
        return example_dataset(
            self.batches(training),
            self._train_table if training else self._validation_table,
            num_hosts=context.num_input_pipelines,
            host=context.input_pipeline_id,
            rows_per_batch=context.get_per_replica_batch_size(params.global_batch_size),
            start_step=start_step,
            steps=self.train_steps if training else None,
        )

    def batches(self, training: bool) -> Batches:
        """Returns which examples make each step; those of an evaluation are always sorted by length.

        Args:
            training: whether to train on them; else to evaluate.

        Raises:
            UserError: the settings' lengths fit neither the set nor the model.
        """
        data = self.task_config.train_data if training else self.task_config.validation_data
        batching = self.task_config.batching if training else "length"
        micro_batches = self.replicas * self.accumulation_steps
        return self._batches(training, batching, data.global_batch_size, tuple(data.lengths), micro_batches)

    def sampled_classes(self) -> np.ndarray | None:
        """Returns the class of each training example, if training sees all as often: see Batches.classes."""
        return None

    @functools.cache  # noqa: B019 (a task lives as long as its run)
    def _batches(
        self, training: bool, batching: str, batch_size: int, lengths: tuple[int, ...], micro_batches: int
    ) -> Batches:
        config = self.task_config
        if training:
            classes = self.sampled_classes()
            batches = Batches(
                self.example_set, batch_size, config.seed, classes=classes, window=config.sort_window
            )
        else:
            batches = Batches(self.validation_set, batch_size, repeat=False)
        if batching == "fixed":
            return batches
        if batching == "packed":
            return batches.pack(micro_batches, max(self.train_steps or 0, batches.steps))
        return batches.cut(lengths, self.segment_len or MULTIPLE, self.least_length)

    @property
    def segment_len(self) -> int:
        """Tokens of the segments in which texts are read; 0: at once."""
        return getattr(self.task_config.model, "segment_len", 0)

    @property
    def least_length(self) -> int:
        """The least length that the model takes."""
        return 1

    def any_length(self, training):
        # Texts that are read in segments are as many in a graph as there are.
        is_cut = not training or self.task_config.batching in ("length", "packed")
        return is_cut and not self.segment_len

    def lengths(self):
        return [*self.batches(training=True).cut_to] or [None]

    def step_lengths(self, first, steps, training, multiple=None):
        batches, steps = self.batches(training), range(first, first + steps)
        data = self.task_config.train_data if training else self.task_config.validation_data
        if data.lengths or multiple is None or not self.any_length(training):
            return [batches.length(step) for step in steps]
        if batches.micro_batches:
            return [batches.rows(step) for step in steps]
        longest = [max(batches.longest(step), self.least_length) for step in steps]
        return [min(-(-length // multiple) * multiple, batches.examples.seq_len) for length in longest]

    def cut(self, features, length, training):
        examples = self.example_set if training else self.validation_set
        if length is not None and "packed_start" in features:
            source = packed_source(
                features["packed_start"], features["input_mask"], length, self.accumulation_steps
            )
            return {**features, "packed_source": source}
        if length is None or (isinstance(length, int) and length == examples.seq_len):
            return features
        return cut_rows(
            features, length, examples, (*TOKEN_FEATURES, *self.TOKEN_COLUMNS), self.POSITION_COLUMNS
        )

    def read_in_graph(self, train_steps: int):
        self.train_steps = train_steps
        self._train_table = ExampleTable(self.example_set)
        self.read_validation_in_graph()

    def read_validation_in_graph(self):
        """Does what `read_in_graph` does for the validation set alone."""
        self._validation_table = self.validation_set and ExampleTable(self.validation_set)

    def validation_steps(self) -> int:
        return self.batches(training=False).steps

    def tokens_per_step(self, length=None):
        examples, batches = self.example_set, self.batches(training=True)
        if batches.micro_batches and length:
            return batches.micro_batches * length * examples.seq_len
        return batches.batch_size * examples.sequences * (length or examples.seq_len)

    def evaluation_rows(self, features, outputs) -> dict[str, tf.Tensor]:
        rows = {
            "index": features["index"],
            "finite": _finite_rows(outputs),
            **self.predictions(features, outputs),
        }
        if "offset" in features:
            rows |= whole_rows(
                rows, features, self.validation_set, self.TOKEN_PREDICTIONS, self.POSITION_PREDICTIONS
            )
        return rows

    def report(self, rows: dict[str, np.ndarray]) -> dict[str, float]:
        predictions = in_order(rows, self.validation_set.records)
        if bad := without_numbers(predictions):
            logging.warning(
                "the model's outputs are NaN or infinite for %d examples of %s, first number %d: they have "
                "no scores, and these weights are not kept as the best",
                len(bad),
                self.validation_set.folder,
                bad[0],
            )
            return {self.BEST_METRIC: -np.inf}
        self.warn_if_alike(self.validation_set, predictions)
        return self.score(self.validation_set, predictions)

    def after_evaluation(self, model, metrics: Mapping[str, float], step: int, model_dir: str):
        keep_best(self, model, metrics, step, model_dir)

    def save_assets(self, model_dir: str):
        """Writes next to the weights what later tools need: architecture, tokenizer, the set's settings."""
        tf.io.gfile.makedirs(model_dir)
        files.write(f"{model_dir}/{CONFIG_FILE}", self.xlnet_config.to_json())
        for name in (TOKENIZER_FILE, MANIFEST_FILE):
            files.copy(str(self.example_set.folder / name), f"{model_dir}/{name}")

    def best_metrics(self) -> dict[str, Any]:
        """Returns the metrics of the run's best evaluation; empty if there was none.

        A finished run, or its folder of best weights, is its own set of examples.
        """
        folder = self.example_set.folder
        found = read_metrics(f"{folder}/{BEST}") or read_metrics(str(folder))
        return found or dict(ModelCard.read(str(folder)).thresholds)  # of weights without a run

    def data_warnings(self):
        found = [line for examples in self.sets.values() for line in example_report.warnings(examples)]
        return found + example_report.shared_with_train(self.sets)

    def data_bytes(self) -> int:
        return sum(shard["bytes"] for examples in self.sets.values() for shard in examples.shards)

    def check_data(self):
        for examples in self.sets.values():
            examples.check_files(checksums=True)

    def name_rows(self, step: int, rows: Sequence[int]) -> list[str]:
        numbers = self.batches(training=True).numbers(step)
        return [f"row {row}: example {numbers[row]} of {self.example_set.folder}" for row in rows]

    def data_difference(self, model_dir: str) -> list[str]:
        names = ("tokenizer", "cleaning", "seq_len", "settings", "shards")
        before, now = (
            {name: getattr(examples, name) for name in names}
            for examples in (ExampleSet.load(model_dir), self.example_set)
        )
        return architecture_difference(self.xlnet_config, model_dir) + [
            f"examples' {line}" for line in settings_difference(before, now)
        ]


def alike(values: np.ndarray, axis: int) -> bool:
    """Returns whether float values differ along an axis by no more than 1e-4 of the largest."""
    return bool(np.all(np.ptp(values, axis=axis) <= _ALIKE * (1 + np.abs(values).max(initial=0))))


def row_weights(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns 1 for rows that are examples and 0 for those that fill up a batch: [B] float32."""
    return tf.cast(features["index"] != FILLER, tf.float32)


def _finite_rows(outputs) -> tf.Tensor:
    """Returns 1 for rows of a model's outputs that are all numbers and 0 for the others: [B] int32."""
    values = [value for value in tf.nest.flatten(outputs) if value.dtype.is_floating]
    finite = [tf.reduce_all(tf.math.is_finite(v), axis=list(range(1, v.shape.rank))) for v in values]
    return tf.cast(tf.reduce_all(finite, axis=0), tf.int32)


def without_numbers(predictions: Mapping[str, np.ndarray]) -> list[int]:
    """Returns the examples whose outputs are NaN or infinite: their first class would be the largest."""
    return np.flatnonzero(predictions["finite"] == 0).tolist()


def in_order(rows: Mapping[str, np.ndarray], records: int) -> dict[str, np.ndarray]:
    """Puts rows into the order of their set and leaves out the filler.

    Args:
        rows: name -> [rows, ...], `index` among them.
        records: size of the set.

    Raises:
        ValueError: rows are missing or come twice.
    """
    real = rows["index"] != FILLER
    order = np.argsort(rows["index"][real])
    ordered = {name: values[real][order] for name, values in rows.items()}
    if not np.array_equal(ordered["index"], np.arange(records)):
        raise ValueError(f"predictions are of {len(order)} rows, expected each of {records} once")
    return ordered


def finetune(
    params: cfg.ExperimentConfig,
    task_class: type[FinetuningTask],
    strategy: tf.distribute.Strategy,
    model_dir: str,
) -> dict[str, float]:
    """Fine-tunes, or resumes the run in model_dir.

    Args:
        params: the settings; what depends on the examples is filled in.
        task_class: what to train.
        strategy: from `training.runtime.prepare`.
        model_dir: folder of the run.

    Returns:
        The metrics of the last evaluation; empty without validation examples.

    Raises:
        UserError: settings, examples, checkpoint, devices or model_dir do not fit together.
        FileNotFoundError: there are no examples.
        Diverged: too many steps one after another had to be skipped.
    """
    replicas = strategy.num_replicas_in_sync if params.runtime.distribution_strategy == "tpu" else 0
    task = build_task(params, task_class, model_dir, replicas)
    check_memory(params, task, strategy)
    return run_training(params, task, strategy, model_dir)


def keep_batches(params: cfg.ExperimentConfig, model_dir: str) -> bool:
    """Takes over how the run in model_dir makes its batches, where not given; False: there is no run."""
    settings, data = f"{model_dir}/{PARAMS_FILE}", params.task.train_data
    if not tf.io.gfile.exists(settings):
        return False
    before = files.read_yaml(settings).get("task", {})
    batching = before.get("batching", "fixed")
    params.task.batching = params.task.batching or batching
    if params.task.batching == batching:
        data.lengths = data.lengths or before.get("train_data", {}).get("lengths", [])
    return True


def build_task(
    params: cfg.ExperimentConfig, task_class: type[FinetuningTask], model_dir: str = "", tpu_replicas: int = 0
) -> FinetuningTask:
    """Returns the task and fills in what depends on its examples.

    Args:
        params: the settings; changed.
        task_class: what to train.
        model_dir: folder of the run; one that is there already keeps its batches.
        tpu_replicas: of the TPU that is to train; 0: other devices are.

    Raises:
        UserError: settings, examples and checkpoint do not fit together.
        FileNotFoundError: there are no examples.
    """
    data = params.task.train_data
    keep_batches(params, model_dir)
    if params.task.batching not in (None, *BATCHING):
        raise UserError(f"task.batching is {params.task.batching!r}: expected one of {', '.join(BATCHING)}")
    task = task_class(params.task)
    if not task.segment_len and (memory_len := getattr(params.task.model, "memory_len", 0)):
        logging.warning(
            "task.model.memory_len (--memory_len) is %d and has no effect: texts are read at once. Give "
            "--segment_len, too",
            memory_len,
        )
    complete(params, task.example_set.records)
    task.train_steps = params.trainer.train_steps
    one_text = "train_data.lengths" if data.lengths else "model.segment_len" if task.segment_len else ""
    if params.task.batching == "packed" and one_text:
        raise UserError(f"task.{one_text} is for rows of one text: leave it out, or task.batching=packed")
    if not params.task.batching:
        can_pack = tpu_replicas and not one_text
        params.task.batching = _fewest_positions(params, task, tpu_replicas) if can_pack else "length"
    if params.task.batching != "length" and params.task.sort_window != WINDOW:
        logging.warning(
            "task.sort_window (--sort_window) is %d and has no effect, as task.batching (--batching) is %s: "
            "only batches by length are sorted",
            params.task.sort_window,
            params.task.batching,
        )
    for examples in task.sets.values():
        if not task.has_answers(examples):
            raise UserError(f"{examples.folder} has examples without answers: it can only be predicted")
    for training in (True, False)[: 1 + bool(task.validation_set)]:
        task.batches(training)  # refuses lengths that do not fit
    return task


def _fewest_positions(params: cfg.ExperimentConfig, task: FinetuningTask, replicas: int) -> str:
    """Returns how an epoch's batches have the fewest positions on a TPU: "length" or "packed"."""
    task.replicas, task.accumulation_steps = replicas, params.trainer.accumulation_steps
    rows, micro_batches = params.task.train_data.global_batch_size, replicas * task.accumulation_steps

    def positions(batching: str) -> int:
        params.task.batching = batching
        steps = task.step_lengths(0, task.batches(training=True).steps, training=True)
        return sum(map(task.tokens_per_step, steps))

    return min(("length", "packed"), key=positions) if rows % micro_batches == 0 else "length"

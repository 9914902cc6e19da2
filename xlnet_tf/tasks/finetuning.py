"""What all fine-tuning tasks share: data, initial weights, metrics of a whole set, the best model.

A task of its own is one head and one file (see tasks/classification/task.py): it says how to build its model,
what its loss is, what it predicts for each example, and how predictions are scored and written.
"""

import abc
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from official.core import config_definitions as cfg
from official.core import exp_factory, task_factory

from xlnet_tf import files, task_registry
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE
from xlnet_tf.checkpoints.model_card import PARAMS_FILE
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.pages import next_steps, page
from xlnet_tf.records import example_report
from xlnet_tf.records.batching import WINDOW
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks import compatibility
from xlnet_tf.tasks.example_data import ExampleData, ModelInputs
from xlnet_tf.tasks.initial_weights import InitialWeights
from xlnet_tf.tasks.scoring import ScoredTask, row_weights
from xlnet_tf.tasks.settings import BATCHING, FinetuningConfig, fill_defaults, finetuning_experiment
from xlnet_tf.text.cleaning import MANIFEST_FILE
from xlnet_tf.text.vocabulary import TOKENIZER_FILE
from xlnet_tf.training.checks import check_memory
from xlnet_tf.training.early_stopping import keep_best
from xlnet_tf.training.run import run_training

_CHARACTERS = 400  # of a text on the run's page


def register(experiment: str, config: type[FinetuningConfig]) -> Callable[[type], type]:
    """Returns a class decorator for the task of these settings; `experiment` is the name of its defaults."""
    exp_factory.register_config_factory(experiment)(lambda: finetuning_experiment(config()))
    return task_factory.register_task_cls(config)


class FinetuningTask(ScoredTask):
    """A task on a set of examples.

    Missing settings of how texts are read are filled in from init_checkpoint, or with defaults. `trained_on`
    is the set that a run was trained on, to use its model on validation_data alone.
    """

    TASK: ClassVar[str]  # its name, or that of the task whose sets it reads (see task_registry)
    SETTINGS: ClassVar[Mapping[str, Any]] = {}  # settings of a set that it reads, and their types
    MUST_AGREE: ClassVar[tuple[str, ...]] = ()  # settings in which training and validation sets must agree
    TOKEN_COLUMNS: ClassVar[tuple[str, ...]] = ()  # with a value for each token
    POSITION_COLUMNS: ClassVar[tuple[str, ...]] = ()  # that are the position of a token
    TRAINING_NAMES: ClassVar[Mapping[str, str]] = {}  # column -> its name for the model in training alone
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
        inputs = ModelInputs(
            self.TOKEN_COLUMNS, self.POSITION_COLUMNS, self.TRAINING_NAMES, self.segment_len, self.min_length
        )
        self.data = ExampleData(
            params, self.example_set, self.validation_set, inputs, classes=self.sampled_classes
        )
        for examples in self.data.sets.values():
            if task_registry.canonical(examples.task) != self.TASK:
                raise UserError(
                    f"{examples.folder} has examples for {examples.task}: expected some for {self.TASK}"
                )
            self.check_settings(examples)
        if self.validation_set:
            compatibility.check_same_settings(self.example_set, self.validation_set, self.MUST_AGREE)
        compatibility.check_segments(params.model, self.data.sets)
        self._initial_weights = InitialWeights(params, self.example_set)
        self.xlnet_config = self._initial_weights.architecture
        self.n_layer = self.xlnet_config.n_layer
        if not trained_on:
            self._initial_weights.check_reinit()

    @abc.abstractmethod
    def build_head(self, encoder: XLNetEncoder) -> tf_keras.Model:
        """Returns the whole model, not built yet, over an encoder that is not built either."""

    def new_scopes(self) -> list[str]:
        """Returns the scopes of the model (see names.head_scope) that a pretrained checkpoint lacks."""
        head = task_registry.entry_for_set(self.example_set).head
        return ["summary", "pooling", head.format(task=getattr(self, "head_name", ""))]

    def counts(self, features):
        """Returns by how much the loss is divided: by default the examples."""
        return {"loss": tf.reduce_sum(row_weights(features))}

    def check_settings(self, examples: ExampleSet):
        """Raises UserError unless a set's settings have what the task reads."""
        compatibility.check_settings(examples, self.SETTINGS)

    def sampled_classes(self) -> np.ndarray | None:
        """Returns the class of each training example, if training sees all as often: see Batches.classes."""
        return None

    @property
    def segment_len(self) -> int:
        """Tokens of the segments in which texts are read; 0: at once."""
        return getattr(self.task_config.model, "segment_len", 0)

    @property
    def min_length(self) -> int:
        """The fewest tokens that the model takes."""
        return 1

    def build_model(self) -> tf_keras.Model:
        model = self.build_head(self.build_encoder())
        model.build(None)
        return model

    def build_encoder(self, **options) -> XLNetEncoder:
        """Returns the encoder of the settings; explicit options take precedence."""
        model = self.task_config.model
        options = {"memory_len": getattr(model, "memory_len", 0) or self.segment_len} | options
        return XLNetEncoder(self.xlnet_config, **model.encoder_options() | options)

    def initialize(self, model: tf_keras.Model):
        """Loads `init_checkpoint`, of any format, into a new run's model; the head may be new."""
        self._initial_weights.load(model, self.new_scopes())

    def after_evaluation(self, model, metrics: Mapping[str, float], step: int, model_dir: str):
        keep_best(self, model, metrics, step, model_dir)

    def report_parts(self, model_dir):
        if mistakes := self.mistakes():
            yield page.section("Mistakes", "What the last evaluation on dev got wrong.")
            rows = [[next_steps.short(text, _CHARACTERS) for text in each] for each in mistakes]
            yield page.table(("Text", "Expected", "Answered"), rows)
        for split, examples in self.data.sets.items():
            yield page.section(f"Data: {split}", str(examples.folder))
            yield page.table(("Of the set", "Value"), examples.facts())
            yield from map(page.paragraph, example_report.warnings(examples))
        task = task_registry.canonical(self.example_set.task)
        dev = str(self.validation_set.folder) if self.validation_set else ""
        yield page.section("Next")
        yield page.commands(next_steps.after_finetuning(model_dir, task, self._first_example, dev))

    @functools.cached_property
    def _first_example(self) -> Mapping[str, Any]:
        """The first training example's line of examples.jsonl, read once: its checksum takes a while."""
        try:
            return next(self.example_set.sidecar(), {})
        except Exception as error:  # training does not need this file
            logging.warning("the run's page asks about no example of your own: %s", error)
            return {}

    def save_assets(self, model_dir: str):
        """Writes next to the weights what later tools need: architecture, tokenizer, the set's settings."""
        tf.io.gfile.makedirs(model_dir)
        files.write(f"{model_dir}/{CONFIG_FILE}", self.xlnet_config.to_json())
        for name in (TOKENIZER_FILE, MANIFEST_FILE):
            files.copy(str(self.example_set.folder / name), f"{model_dir}/{name}")


def finetune(
    params: cfg.ExperimentConfig,
    task_class: type[FinetuningTask],
    strategy: tf.distribute.Strategy,
    model_dir: str,
) -> dict[str, float]:
    """Fine-tunes, or resumes the run in model_dir; returns the last evaluation's metrics, empty without one.

    `strategy` is from `training.runtime.prepare`. Raises Diverged if too many steps in a row were skipped.
    """
    replicas = strategy.num_replicas_in_sync if params.runtime.distribution_strategy == "tpu" else 0
    task = build_task(params, task_class, model_dir, replicas)
    check_memory(params, task, strategy)
    return run_training(params, task, strategy, model_dir)


def keep_batches(params: cfg.ExperimentConfig, model_dir: str) -> bool:
    """Takes over missing batch settings from the run in model_dir; False if there is no run."""
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

    An existing run in model_dir keeps its batches. `tpu_replicas` is 0 unless a TPU trains.
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
    fill_defaults(params, task.example_set.records)
    task.data.train_steps = params.trainer.train_steps
    one_text = "train_data.lengths" if data.lengths else "model.segment_len" if task.segment_len else ""
    if params.task.batching == "packed" and one_text:
        raise UserError(f"task.{one_text} is for rows of one text: leave it out, or task.batching=packed")
    if not params.task.batching:
        can_pack = tpu_replicas and not one_text
        params.task.batching = _fewest_positions(params, task.data, tpu_replicas) if can_pack else "length"
    if params.task.batching != "length" and params.task.sort_window != WINDOW:
        logging.warning(
            "task.sort_window (--sort_window) is %d and has no effect, as task.batching (--batching) is %s: "
            "only batches by length are sorted",
            params.task.sort_window,
            params.task.batching,
        )
    for examples in task.data.sets.values():
        if not task.has_answers(examples):
            raise UserError(f"{examples.folder} has examples without answers: it can only be predicted")
    for training in (True, False)[: 1 + bool(task.validation_set)]:
        task.data.batching(training)  # refuses lengths that do not fit
    return task


def _fewest_positions(params: cfg.ExperimentConfig, data: ExampleData, replicas: int) -> str:
    """Returns which batching gives an epoch the fewest positions on a TPU: "length" or "packed"."""
    rows, accumulation_steps = params.task.train_data.global_batch_size, params.trainer.accumulation_steps

    def positions(kind: str) -> int:
        params.task.batching = kind
        batching = data.batching(True, replicas, accumulation_steps)
        return sum(map(batching.tokens_of_step, batching.lengths_of_steps(0, batching.steps)))

    if rows % (replicas * accumulation_steps):
        return "length"
    return min(("length", "packed"), key=positions)

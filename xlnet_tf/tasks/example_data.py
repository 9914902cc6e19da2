"""The examples of a fine-tuning, and how the rows of its steps are made: cut, packed or whole."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xlnet_tf.differences import settings_difference
from xlnet_tf.models.reading import TOKEN_FEATURES, packed_source
from xlnet_tf.records import example_report
from xlnet_tf.records.batching import MULTIPLE, Batches
from xlnet_tf.records.example_reader import ExampleTable, example_dataset
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks.cutting import cut_rows
from xlnet_tf.tasks.settings import FinetuningConfig
from xlnet_tf.training.data import Batching, TaskData


class ModelInputs(NamedTuple):
    """How a task's model takes the columns of a set: those with a value for each token, or its position."""

    token_columns: Sequence[str] = ()
    position_columns: Sequence[str] = ()
    training_names: Mapping[str, str] = {}  # what the model calls columns in training alone
    segment_len: int = 0  # 0: texts at once
    min_length: int = 1


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ExampleBatching(Batching):
    """Batches rows of similar length, cut to that length; or packed or whole rows."""

    batches: Batches
    inputs: ModelInputs
    has_dynamic_length: bool
    chosen: bool  # whether the settings choose the lengths, and all graphs keep to them
    accumulation_steps: int
    table: ExampleTable | None
    train_steps: int | None

    @property
    def compiled_lengths(self):
        return [*self.batches.cut_to] or [None]

    def dataset(self, input_context=None, start_step=0):
        context = input_context or tf.distribute.InputContext()
        names = self.inputs.training_names if self.batches.repeat else {}
        dataset = example_dataset(
            self.batches,
            self.table,
            num_hosts=context.num_input_pipelines,
            host=context.input_pipeline_id,
            rows_per_batch=context.get_per_replica_batch_size(self.batches.batch_size),
            start_step=start_step,
            steps=self.train_steps if self.batches.repeat else None,
        )
        if not names:
            return dataset
        return dataset.map(
            lambda features: {names.get(name, name): value for name, value in features.items()}
        )

    @property
    def steps(self):
        return self.batches.steps

    def tokens_of_step(self, length=None):
        batches, examples = self.batches, self.batches.examples
        if batches.micro_batches and length:
            return batches.micro_batches * length * examples.seq_len
        return batches.batch_size * examples.sequences * (length or examples.seq_len)

    def lengths_of_steps(self, first, steps, multiple=None):
        batches, numbers = self.batches, range(first, first + steps)
        if self.chosen or multiple is None or not self.has_dynamic_length:
            return [batches.length(step) for step in numbers]
        if batches.micro_batches:
            return [batches.rows(step) for step in numbers]
        longest = [max(batches.longest(step), self.inputs.min_length) for step in numbers]
        return [min(-(-length // multiple) * multiple, batches.examples.seq_len) for length in longest]

    def cut(self, features, length):
        examples = self.batches.examples
        if length is not None and "packed_start" in features:
            source = packed_source(
                features["packed_start"], features["input_mask"], length, self.accumulation_steps
            )
            return {**features, "packed_source": source}
        if length is None or (isinstance(length, int) and length == examples.seq_len):
            return features
        token_columns = (*TOKEN_FEATURES, *self.inputs.token_columns)
        return cut_rows(features, length, examples, token_columns, self.inputs.position_columns)

    def describe_rows(self, step, rows):
        numbers = self.batches.numbers(step)
        return [f"row {row}: example {numbers[row]} of {self.batches.examples.folder}" for row in rows]


class ExampleData(TaskData):
    """The sets of a fine-tuning; with a trained model, `train` is the set that it was trained on.

    `classes` returns each training example's class, if training samples all classes equally often.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        train: ExampleSet,
        dev: ExampleSet | None,
        inputs: ModelInputs,
        classes: Callable[[], np.ndarray | None],
    ):
        self.train, self.dev = train, dev
        self.train_steps: int | None = None
        self._config, self._inputs, self._classes = config, inputs, classes
        self._tables: dict[bool, ExampleTable] = {}  # of training and evaluation

    @property
    def sets(self) -> dict[str, ExampleSet]:
        """The sets of training and validation, the latter if there is one."""
        return {"train": self.train} | ({"dev": self.dev} if self.dev else {})

    def batching(self, training, replicas=1, accumulation_steps=1):
        """Returns which rows make each step; an evaluation always sorts by length."""
        config = self._config
        data = config.train_data if training else config.validation_data
        kind = config.batching if training else "length"
        micro_batches = replicas * accumulation_steps if kind == "packed" else 0
        return ExampleBatching(
            batches=self._batches(training, kind, data.global_batch_size, tuple(data.lengths), micro_batches),
            inputs=self._inputs,
            # Texts that are read in segments are as many in a graph as there are.
            has_dynamic_length=kind in ("length", "packed") and not self._inputs.segment_len,
            chosen=bool(data.lengths),
            accumulation_steps=accumulation_steps,
            table=self._tables.get(training),
            train_steps=self.train_steps,
        )

    @functools.cached_property
    def _batches(self):
        return functools.cache(self._build_batches)  # on a method it would keep the data for ever

    def _build_batches(
        self, training: bool, kind: str, batch_size: int, lengths: tuple[int, ...], micro_batches: int
    ) -> Batches:
        config = self._config
        if training:
            batches = Batches(
                self.train, batch_size, config.seed, classes=self._classes(), window=config.sort_window
            )
        else:
            batches = Batches(self.dev, batch_size, repeat=False)
        if kind == "fixed":
            return batches
        if kind == "packed":
            return batches.pack(micro_batches, max(self.train_steps or 0, batches.steps))
        return batches.cut(lengths, self._inputs.segment_len or MULTIPLE, self._inputs.min_length)

    def use_tf_reader(self, train_steps):
        self.train_steps = train_steps
        self._tables[True] = ExampleTable(self.train)
        self.use_tf_reader_for_dev()

    def use_tf_reader_for_dev(self) -> None:
        """Does for the validation set alone what `use_tf_reader` does."""
        if self.dev:
            self._tables[False] = ExampleTable(self.dev)

    def dev_set(self):
        parts = [*(shard.sha256 for shard in self.dev.shards), self.dev.sidecar_sha256]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def warnings(self):
        lines = [line for examples in self.sets.values() for line in example_report.warnings(examples)]
        return lines + example_report.shared_with_train(self.sets)

    def difference(self, model_dir):
        names = ("tokenizer", "cleaning", "seq_len", "settings", "shards")
        before, now = (
            {name: getattr(examples, name) for name in names}
            for examples in (ExampleSet.load(model_dir), self.train)
        )
        return [f"examples' {line}" for line in settings_difference(before, now)]

"""The interface between training and data: how the rows of each step are made."""

import abc
from collections.abc import Mapping, Sequence

import tensorflow as tf

from xlnet_tf.records.record_set import RecordSet

Features = Mapping[str, tf.Tensor]


class Batching(abc.ABC):
    """Which rows make each step; by default they are whole, which the length None stands for.

    With has_dynamic_length one graph computes rows of any length, else each of compiled_lengths has a graph.
    """

    has_dynamic_length = False
    compiled_lengths: Sequence[int | None] = (None,)

    @abc.abstractmethod
    def dataset(
        self, input_context: tf.distribute.InputContext | None = None, start_step: int = 0
    ) -> tf.data.Dataset:
        """Returns one host's batches, one per replica, in the replicas' order, after `start_step` steps."""

    @property
    @abc.abstractmethod
    def steps(self) -> int:
        """Steps that read everything once."""

    @abc.abstractmethod
    def tokens_of_step(self, length: int | None = None) -> int:
        """Returns how many tokens a step with rows of this length reads; None: with whole rows."""

    def lengths_of_steps(self, first: int, steps: int, multiple: int | None = None) -> list[int | None]:
        """Returns for each step how many tokens its rows are cut to, or its number of packed rows.

        `first` counts from 0. Dynamic lengths are rounded up to `multiple`; None: only `compiled_lengths`.
        """
        return [None] * steps

    def lengths_for_graph(self, steps: int, multiple: int | None) -> list[int | tf.Tensor | None]:
        """Returns `lengths_of_steps` of the first steps, as tensors if one graph serves all lengths."""
        lengths = self.lengths_of_steps(0, steps, multiple)
        is_for_all = multiple is not None and self.has_dynamic_length
        return [*map(tf.constant, lengths)] if is_for_all else lengths

    def cut(self, features: Features, length: int | tf.Tensor | None) -> Features:
        """Cuts whole rows to a length of `lengths_of_steps`, or packs them into that many."""
        return features

    def describe_rows(self, step: int, rows: Sequence[int]) -> list[str]:
        """Returns which records or examples these rows of a step's global batch are, one line each."""
        return [f"row {row} of the batch" for row in rows]


class TaskData(abc.ABC):
    """What a task trains and evaluates on; `sets` names its sets for people."""

    sets: Mapping[str, RecordSet]

    @abc.abstractmethod
    def batching(self, training: bool, replicas: int = 1, accumulation_steps: int = 1) -> Batching:
        """Returns the rows of each step; training splits them into replicas * accumulation_steps parts."""

    @abc.abstractmethod
    def use_tf_reader(self, train_steps: int) -> None:
        """Switches to reading the data in TensorFlow alone, for hosts that do not run our Python."""

    def dev_set(self) -> str:
        """Returns a digest of the dev set's content; by default all dev sets count as the same."""
        return ""

    def warnings(self) -> list[str]:
        """Returns what should be fixed before training; --dry_run shows it."""
        return []

    @property
    def bytes(self) -> int:
        """Bytes that `check` reads."""
        return sum(shard.bytes for records in self.sets.values() for shard in records.shards)

    def check(self) -> None:
        """Compares all files with their checksums; raises UserError that names the damaged file and place."""
        for records in self.sets.values():
            records.check_files(checksums=True)

    @abc.abstractmethod
    def difference(self, model_dir: str) -> list[str]:
        """Returns how the training data differ from those of the run in model_dir, one line each."""

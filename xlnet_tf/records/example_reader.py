"""Reads fine-tuning examples as batches.

Which examples make step n follows from (set, batch size, seed, n) alone: each epoch is a permutation of the
whole set, one epoch follows the other without a gap, and a run resumes exactly by giving the step. Examples
have a fixed size, so each is read from its position in its shard; shards that are not local are read into
memory.
"""

import functools
import itertools
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from etils import epath

from xlnet_tf.errors import UserError
from xlnet_tf.records import shards as shards_lib
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.reader import prefetched
from xlnet_tf.text.special_tokens import PAD_ID

FILLER = -1  # index of the rows that fill up the last batch of an evaluation


@tf.autograph.experimental.do_not_convert
def example_dataset(
    source: "ExampleSet | ExampleTable",
    batch_size: int,
    *,
    num_hosts: int = 1,
    host: int = 0,
    rows_per_batch: int | None = None,
    start_step: int = 0,
    seed: int = 0,
    repeat: bool = True,
    steps: int | None = None,
) -> tf.data.Dataset:
    """Reads a set in batches.

    Args:
        source: the set, or a table of it.
        batch_size: rows of a step over all hosts.
        num_hosts: hosts that read; each gets batch_size / num_hosts consecutive rows.
        host: index of this one.
        rows_per_batch: rows of one element of the dataset. A step of a host is (batch_size / num_hosts) /
            rows_per_batch consecutive elements, one a replica. None: all rows of the host.
        start_step: steps that have already been read.
        seed: of the order.
        repeat: training: for ever, in random order. Without, every example once, in the set's order; rows
            without text, of index -1, fill up the last batch.
        steps: the step to end at, counted from 0 whatever start_step is; to repeat a table needs one.

    Returns:
        A dataset of dicts, B = rows_per_batch, T = all tokens of an example: input_word_ids int32 [B, T],
        input_mask uint8 [B, T] (1 = token, 0 = padding), input_type_ids uint8 [B, T], index int64 [B], and
        the set's other columns under their names.

    Raises:
        UserError: sizes do not divide, the set is empty, or a shard has another size.
        FileNotFoundError: a shard is missing.
    """
    rows = batch_size // num_hosts
    rows_per_batch = rows_per_batch or rows
    if batch_size % num_hosts or rows % rows_per_batch:
        raise UserError(
            f"batch_size is {batch_size}: expected a multiple of {num_hosts} hosts x {rows_per_batch} rows"
        )
    examples = source.examples if isinstance(source, ExampleTable) else source
    if not examples.records:
        raise UserError(f"{examples.folder} holds no examples: expected at least one")

    def own_numbers() -> Iterator[np.ndarray]:
        last = None if steps is None else max(0, steps - start_step)
        of_steps = _numbers(examples.records, batch_size, start_step, seed, repeat)
        for numbers in itertools.islice(of_steps, last):
            yield from numbers[host * rows : (host + 1) * rows].reshape(-1, rows_per_batch)

    if isinstance(source, ExampleTable):
        return prefetched(
            source.batches(np.reshape(np.array([*own_numbers()], np.int64), (-1, rows_per_batch)))
        )
    examples.check_files()
    shard_files = _ShardFiles(examples)

    def batches() -> Iterator[dict[str, np.ndarray]]:
        return map(shard_files.read, own_numbers())

    signature = {
        name: tf.TensorSpec([rows_per_batch, *array.shape[1:]], array.dtype)
        for name, array in shard_files.read(np.array([0])).items()
    }
    return prefetched(tf.data.Dataset.from_generator(batches, output_signature=signature))


def examples_of_step(examples: ExampleSet, batch_size: int, step: int, seed: int) -> np.ndarray:
    """Returns the numbers of the examples that a training step reads: int64 [batch_size].

    Args:
        examples: the set.
        batch_size: rows of a step over all hosts.
        step: counted from 0.
        seed: of the order.
    """
    return next(_numbers(examples.records, batch_size, step, seed, repeat=True))


def num_eval_steps(examples: ExampleSet, batch_size: int) -> int:
    """Returns the steps of `example_dataset(..., repeat=False)`."""
    return -(-examples.records // batch_size)


def _numbers(records: int, batch_size: int, start_step: int, seed: int, repeat: bool) -> Iterator[np.ndarray]:
    """Yields the numbers of the examples of each step [batch_size]; FILLER where there are none left."""
    step = start_step
    while repeat or step * batch_size < records:
        positions = np.arange(step * batch_size, (step + 1) * batch_size)
        if repeat:
            epochs = [
                (epoch, positions[positions // records == epoch]) for epoch in np.unique(positions // records)
            ]
            yield np.concatenate([_order(records, seed, int(e))[part % records] for e, part in epochs])
        else:
            yield np.where(positions < records, positions, FILLER)
        step += 1


@functools.lru_cache(maxsize=2)  # at the seam of two epochs a batch needs both
def _order(records: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(records)


class _ShardFiles:
    """Random access to the examples of a set."""

    def __init__(self, examples: ExampleSet):
        self._layout = examples.layout
        self._paths = [examples.folder / shard["file"] for shard in examples.shards]
        self._first = np.cumsum([0] + [shard["records"] for shard in examples.shards])
        self._size = shards_lib.framed_bytes(self._layout)
        self._remote = {path: path.read_bytes() for path in self._paths if "://" in str(path)}

    def read(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the features of some examples; FILLER stands for a row without text."""
        shards = np.searchsorted(self._first, np.maximum(numbers, 0), side="right") - 1
        columns: dict[str, np.ndarray] = {}
        for shard in np.unique(shards):
            rows = np.flatnonzero(shards == shard)
            positions = np.maximum(numbers[rows], 0) - self._first[shard]
            framed = self._framed(self._paths[shard], positions)
            found = shards_lib.unframe(framed, self._layout, self._paths[shard], positions)
            self._check(found["index"], np.maximum(numbers[rows], 0), shard)
            for name, values in found.items():
                column = columns.setdefault(name, np.zeros((len(numbers), *values.shape[1:]), values.dtype))
                column[rows] = values
        columns["input_ids"][numbers == FILLER] = PAD_ID
        columns["index"][numbers == FILLER] = FILLER
        word_ids = columns.pop("input_ids").astype(np.int32)
        return {
            "input_word_ids": word_ids,
            "input_mask": (word_ids != PAD_ID).astype(np.uint8),
            "input_type_ids": columns.pop("segment_ids"),
            **columns,
        }

    def _check(self, found: np.ndarray, expected: np.ndarray, shard: int) -> None:
        """Raises UserError if a shard holds other examples of the set than those that belong there."""
        if (wrong := found != expected).any():
            row = int(wrong.argmax())
            record = int(expected[row] - self._first[shard])
            raise UserError(
                f"{self._paths[shard]}: record {record} (byte {record * self._size}) is "
                f"example {found[row]}, expected {expected[row]} (was a shard replaced?): build the examples "
                "again"
            )

    def _framed(self, path: epath.Path, positions: np.ndarray) -> np.ndarray:
        """Returns the framed records at some positions of a shard: uint8 [N, framed_bytes]."""
        offsets = [int(position) * self._size for position in positions]
        if path in self._remote:
            records = [self._remote[path][offset : offset + self._size] for offset in offsets]
        else:  # no memory map: of a file that is cut off meanwhile, that would end the process
            with path.open("rb") as file:
                records = [os.pread(file.fileno(), self._size, offset) for offset in offsets]
        for position, record in zip(positions, records):
            if len(record) < self._size:
                raise UserError(
                    f"{path} ends inside record {position}, at byte "
                    f"{int(position) * self._size + len(record)}: "
                    "build the examples again"
                )
        return np.frombuffer(b"".join(records), np.uint8).reshape(-1, self._size)


class ExampleTable:
    """A set of examples in memory, read in a TensorFlow graph.

    For hosts that make batches where none of our Python runs: those of a TPU that is reached by its name.

    Args:
        examples: the set.

    Raises:
        UserError: a shard is not as it was written.
    """

    def __init__(self, examples: ExampleSet):
        self.examples = examples
        self._columns = examples.arrays()

    def batches(self, numbers: np.ndarray) -> tf.data.Dataset:
        """Returns the batches of `example_dataset` of the examples `numbers`, int64 [batches, B]."""
        # Not constants of the graph, which must be small: tensors in the memory of the host that reads them.
        columns = {name: tf.constant(column) for name, column in self._columns.items()}

        def read(numbers):
            found = {name: tf.gather(column, tf.maximum(numbers, 0)) for name, column in columns.items()}
            ids = tf.cast(found.pop("input_ids"), tf.int32)
            ids = tf.where(numbers[:, None] == FILLER, PAD_ID, ids)
            return {
                "input_word_ids": ids,
                "input_mask": tf.cast(ids != PAD_ID, tf.uint8),
                "input_type_ids": found.pop("segment_ids"),
                **found,
                "index": numbers,
            }

        batches = tf.data.Dataset.from_tensor_slices(numbers)
        return batches.map(read, tf.data.AUTOTUNE, deterministic=True)

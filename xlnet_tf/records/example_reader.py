"""Reads fine-tuning examples as batches; `batching.py` decides which examples make a batch.

Examples have a fixed size, so each is read from its place in its shard; remote shards are read into memory.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from xlnet_tf.errors import UserError
from xlnet_tf.records import shards as shards_lib
from xlnet_tf.records.batching import FILLER, FIX, LENGTHS_FILE, Batches, row_lengths
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.reader import prefetched
from xlnet_tf.text.special_tokens import PAD_ID

_Numbers = tuple[np.ndarray, dict[str, np.ndarray]]  # numbers of examples, other features


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Examples in memory, with what `Batches` needs of them."""

    ids: np.ndarray
    seq_len: int
    folder: str = "features"

    @property
    def records(self) -> int:
        return len(self.ids)

    def lengths(self) -> np.ndarray:
        return row_lengths(self.ids, self.seq_len)


def batches_by_length(
    features: Mapping[str, np.ndarray],
    labels: np.ndarray | Sequence | None = None,
    batch_size: int = 32,
    *,
    shuffle: bool | None = None,
    seed: int = 0,
    sequences: int = 1,
    token_labels: bool = False,
) -> tf.data.Dataset:
    """Makes batches of texts of similar length, cut to a few lengths, for `fit`, `evaluate`, `predict`.

    Args:
        features: what a tokenizer returns, [N, sequences * T].
        labels: N of them; None for `predict`.
        batch_size: the last batch of an epoch may have fewer rows.
        shuffle: whether to draw a new order for each epoch; None: only if labels are given. Without it, the
            texts keep their order, as predictions need, and each batch is cut to its longest text.
        sequences: number of sequences in a row: the choices of a question, the candidates of a query.
        token_labels: whether labels are [N, T], one for each token, and are cut as well.

    Returns:
        A dataset of one epoch: the features, or pairs of features and labels.

    Example:
        >>> model.fit(batches_by_length(tokenizer(texts, seq_len=512), labels), epochs=3)
    """
    arrays = {name: np.asarray(values) for name, values in features.items()}
    ids = arrays["input_word_ids"]
    if labels is not None:
        arrays[""] = np.asarray(labels)
    if wrong := {name or "labels": len(values) for name, values in arrays.items() if len(values) != len(ids)}:
        raise UserError(f"there are {len(ids)} texts and {wrong}; expected as many of each.")
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}; expected at least 1.")
    shuffle = labels is not None if shuffle is None else shuffle
    rows = _Rows(ids, ids.shape[1] // sequences)
    order = Batches(rows, batch_size, repeat=shuffle)
    order = dataclasses.replace(order, by_length=shuffle, cut_to=order.cut().cut_to)
    epochs = itertools.count()
    tokens = {name for name in arrays if name or token_labels}

    def elements():
        epoch = dataclasses.replace(order, seed=seed + next(epochs))
        for step in range(order.steps):
            numbers = epoch.numbers(step)[: rows.records - step * batch_size]
            found = {name: values[numbers] for name, values in arrays.items()}
            found |= _cropped({name: found[name] for name in tokens}, rows.seq_len, order.cut_to)
            answers = found.pop("", None)
            yield found if answers is None else (found, answers)

    specs = {
        name: tf.TensorSpec([None, None] if name in tokens else [None, *values.shape[1:]], values.dtype)
        for name, values in arrays.items()
    }
    signature = specs if labels is None else (specs, specs.pop(""))
    dataset = tf.data.Dataset.from_generator(elements, output_signature=signature)
    return prefetched(dataset.apply(tf.data.experimental.assert_cardinality(order.steps)))


def _cropped(
    columns: Mapping[str, np.ndarray], seq_len: int, lengths: Sequence[int]
) -> dict[str, np.ndarray]:
    """Returns columns [B, sequences * T] without padding beyond the first length that holds all texts."""
    longest = row_lengths(columns["input_word_ids"], seq_len).max()
    length = lengths[int(np.searchsorted(lengths, longest))]
    by_sequence = {name: values.reshape(len(values), -1, seq_len) for name, values in columns.items()}
    padded_left = by_sequence["input_word_ids"][:, :, :1] == PAD_ID
    cropped = {
        name: np.where(padded_left, values[:, :, seq_len - length :], values[:, :, :length])
        for name, values in by_sequence.items()
    }
    return {name: values.reshape(len(values), -1) for name, values in cropped.items()}


@tf.autograph.experimental.do_not_convert
def example_dataset(
    batches: Batches,
    table: "ExampleTable | None" = None,
    *,
    num_hosts: int = 1,
    host: int = 0,
    rows_per_batch: int | None = None,
    start_step: int = 0,
    steps: int | None = None,
) -> tf.data.Dataset:
    """Reads batches of a set, from a table or from its files.

    Args:
        table: the same set's table, to read from instead of its files.
        num_hosts: hosts that read; each gets batch_size / num_hosts consecutive rows.
        rows_per_batch: rows of one element of the dataset. A step of a host is (batch_size / num_hosts) /
            rows_per_batch consecutive elements, one per replica. None: all rows of the host.
        start_step: steps that have already been read.
        steps: the step to end at, counted from 0 whatever start_step is; required to repeat a table.

    Returns:
        A dataset of dicts, B = rows_per_batch, T = all tokens of an example: input_word_ids int32 [B, T],
        input_mask uint8 [B, T] (1 = token, 0 = padding), input_type_ids uint8 [B, T], index int64 [B], and
        the set's other columns under their names; if packed, packed_start int32 [B, sequences] (see
        Batches.starts). Rows are whole: the model's step cuts or packs them.
    """
    rows = batches.batch_size // num_hosts
    if batches.batch_size % num_hosts or rows % (rows_per_batch := rows_per_batch or rows):
        raise UserError(
            f"batch_size is {batches.batch_size}: expected a multiple of {num_hosts} hosts x "
            f"{rows_per_batch} rows"
        )
    last = steps if batches.repeat else batches.steps

    def own_numbers() -> Iterator[_Numbers]:
        for step in itertools.count(start_step) if last is None else range(start_step, last):
            yield from _own_numbers(batches, step, slice(host * rows, (host + 1) * rows), rows_per_batch)

    lengths = batches.examples.lengths() if batches.cut_to else None
    if table:
        table.check_lengths(lengths)
        return prefetched(table.batches([*own_numbers()], rows_per_batch))
    batches.examples.check_files_once()
    shard_files = _ShardFiles(batches.examples, lengths)

    def elements() -> Iterator[dict[str, np.ndarray]]:
        return (shard_files.read(numbers) | more for numbers, more in own_numbers())

    first = shard_files.read(np.array([0]))
    if batches.micro_batches:
        first["packed_start"] = batches.starts(0)
    signature = {
        name: tf.TensorSpec([rows_per_batch, *array.shape[1:]], array.dtype) for name, array in first.items()
    }
    return prefetched(tf.data.Dataset.from_generator(elements, output_signature=signature))


def _own_numbers(batches: Batches, step: int, rows: slice, rows_per_batch: int) -> list[_Numbers]:
    """Returns the elements of a step that a host reads, given its rows of the batch."""

    def own(values: np.ndarray) -> np.ndarray:
        return values[rows].reshape(-1, rows_per_batch, *values.shape[1:])

    numbers = own(batches.numbers(step))
    if not batches.micro_batches:
        return [(part, {}) for part in numbers]
    starts = own(batches.starts(step))
    return [(part, {"packed_start": begins}) for part, begins in zip(numbers, starts)]


class _ShardFiles:
    """Random access to the examples of a set; checks them against `lengths` if given."""

    def __init__(self, examples: ExampleSet, lengths: np.ndarray | None):
        self._examples = examples
        self._lengths = lengths
        self._layout = examples.layout
        self._paths = [examples.path(shard) for shard in examples.shards]
        self._first = np.cumsum([0] + [shard.records for shard in examples.shards])
        self._size = shards_lib.framed_bytes(self._layout)
        self._remote = {path: path.read_bytes() for path in self._paths if "://" in str(path)}

    def read(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the features of the examples with these numbers; FILLER stands for a row without text."""
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
        if self._lengths is not None:
            _check_lengths(self._examples, columns["input_ids"], self._lengths[np.maximum(numbers, 0)])
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
        """Raises UserError if a shard does not hold the examples that belong there."""
        if (wrong := found != expected).any():
            row = int(wrong.argmax())
            record = int(expected[row] - self._first[shard])
            raise UserError(
                f"{self._paths[shard]}: record {record} (byte {record * self._size}) is example "
                f"{found[row]}, expected {expected[row]} (was a shard replaced?): build the examples again"
            )

    def _framed(self, path: epath.Path, positions: np.ndarray) -> np.ndarray:
        """Returns the framed records at some positions of a shard: uint8 [N, framed_bytes]."""
        offsets = [int(position) * self._size for position in positions]
        if path in self._remote:
            records = [self._remote[path][offset : offset + self._size] for offset in offsets]
        else:  # no memory map: truncating the file meanwhile would kill the process
            with path.open("rb") as file:
                records = [os.pread(file.fileno(), self._size, offset) for offset in offsets]
        for position, record in zip(positions, records):
            if len(record) < self._size:
                raise UserError(
                    f"{path} ends inside record {position}, at byte "
                    f"{int(position) * self._size + len(record)}: build the examples again"
                )
        return np.frombuffer(b"".join(records), np.uint8).reshape(-1, self._size)


class ExampleTable:
    """A set of examples in memory, read in a TensorFlow graph, for hosts that cannot run our Python."""

    def __init__(self, examples: ExampleSet):
        self._examples = examples
        self._columns = examples.arrays()

    def check_lengths(self, lengths: np.ndarray | None) -> None:
        """Raises UserError unless the examples are as long as the set's index says."""
        if lengths is not None:
            _check_lengths(self._examples, self._columns["input_ids"], lengths)

    def batches(
        self, elements: Sequence[tuple[np.ndarray, Mapping[str, np.ndarray]]], rows_per_batch: int
    ) -> tf.data.Dataset:
        """Returns batches, each of the examples with these numbers, int64 [B], and additional features."""
        # Tensors in the memory of the reading host, not constants of the graph, which must stay small.
        columns = {name: tf.constant(column) for name, column in self._columns.items()}
        numbers = np.reshape(np.array([part for part, _ in elements], np.int64), (-1, rows_per_batch))
        names = elements[0][1] if elements else ()
        more = {name: np.stack([one[name] for _, one in elements]) for name in names}

        def read(numbers, more):
            found = {name: tf.gather(column, tf.maximum(numbers, 0)) for name, column in columns.items()}
            ids = tf.cast(found.pop("input_ids"), tf.int32)
            ids = tf.where(numbers[:, None] == FILLER, PAD_ID, ids)
            return {
                "input_word_ids": ids,
                "input_mask": tf.cast(ids != PAD_ID, tf.uint8),
                "input_type_ids": found.pop("segment_ids"),
                **found,
                "index": numbers,
                **more,
            }

        batches = tf.data.Dataset.from_tensor_slices((numbers, more))
        return batches.map(read, tf.data.AUTOTUNE, deterministic=True)


def _check_lengths(examples: ExampleSet, input_ids: np.ndarray, expected: np.ndarray) -> None:
    """Raises UserError unless examples are as long as the set's index says: longer ones would be cut off."""
    found = row_lengths(input_ids, examples.seq_len)
    if (wrong := found != expected).any():
        row = int(wrong.argmax())
        raise UserError(
            f"{examples.folder / LENGTHS_FILE} says {expected[row]} tokens of an example that has "
            f"{found[row]}: {FIX}"
        )

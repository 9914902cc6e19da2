"""Which examples of a set make each step, and to how many tokens its rows are cut.

The examples of step n follow from (set, batch size, seed, n) alone: each epoch is a permutation of the whole
set, epochs follow each other without a gap, and a run resumes exactly by giving the step. Most texts are much
shorter than their stored rows, and padding costs as much as text. So examples of similar length share a
batch, and each step cuts its rows to one of a few lengths, the same on all hosts:

    shuffle the epoch's examples -> sort by length within windows of many batches -> shuffle the batches

If some classes are rare, training may sample all classes equally often. An epoch then has as many draws as
the set has examples, of each class in turn, and each class goes through its own examples in random order.

Alternatively, batches stay in random order and several examples share a row (packing): each micro-batch is
packed by itself, and each step has one of a few numbers of rows.

The lengths of a set's examples are counted once and stored in the set's folder, in `lengths.npz`.
"""

import bisect
import dataclasses
import functools
import hashlib
import io
import zipfile
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from etils import epath

from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.text.special_tokens import PAD_ID

FILLER = -1  # index of the rows that fill up the last batch of an evaluation
WINDOW = 50  # batches that are sorted together
LENGTHS_FILE = "lengths.npz"
FIX = "remove it, and it will be made again from the examples"
MULTIPLE = 8  # chosen lengths are multiples of this many tokens
_MOST_LENGTHS = 8
_WORTH = 0.02  # share of all positions that one more length must save, and at least a batch of whole rows:
# building its graph takes about as long as computing such a batch


class Examples(Protocol):
    """The source of batches: an ExampleSet, or rows in memory. Only sets can be packed."""

    folder: epath.Path
    records: int
    seq_len: int

    def lengths(self) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """The batches of a set of examples."""

    examples: Examples
    batch_size: int  # rows of a step over all hosts
    seed: int = 0
    # True for training: endless, in random order. False: every example once, the longest first or, unless
    # `by_length`, in the set's order; FILLER fills up the last batch.
    repeat: bool = True
    by_length: bool = False  # whether examples of similar length share a batch
    # The lengths, ascending, that rows are cut to; if packed, the possible numbers of rows of a micro-batch.
    # Empty: rows are whole.
    cut_to: Sequence[int] = ()
    micro_batches: int = 0  # their number in a step over all devices; each is packed. 0: no packing.
    window: int = WINDOW  # number of batches within which training sorts by length
    # int [records], the class of each example; training then samples all classes equally often. None: it
    # samples all examples equally often.
    classes: np.ndarray | None = None

    def __post_init__(self):
        if not self.examples.records:
            raise UserError(f"{self.examples.folder} holds no examples: expected at least one")
        if self.window < 1:
            raise UserError(f"sort_window is {self.window}: expected at least 1 batch")

    def cut(self, cut_to: Sequence[int] = (), multiple: int = MULTIPLE, least: int = 1) -> "Batches":
        """Returns these batches by length, with rows cut to `cut_to` (ascending; empty: chosen for the set).

        Lengths are at least `least`, and multiples of `multiple` except for the set's own row length.
        """
        batches = dataclasses.replace(self, by_length=True)
        longest, most = int(batches._lengths.max()), self.examples.seq_len
        if not cut_to:
            of_epoch = [batches.longest(step) for step in range(self.steps)]
            cut_to = choose_lengths([*of_epoch, longest], most, multiple, least)
        problem = ""
        if list(cut_to) != sorted({*cut_to}) or cut_to[0] < least or cut_to[-1] > most:
            problem = f"ascending numbers from {least} to {most}, the tokens of its rows"
        elif any(length % multiple and length != most for length in cut_to):
            problem = f"multiples of {multiple}, as the model needs, or {most}, the tokens of its rows"
        elif cut_to[-1] < longest:
            problem = f"the last to be at least {longest}, the tokens of its longest example"
        if problem:
            raise UserError(f"lengths for {self.examples.folder} are {list(cut_to)}: expected {problem}")
        return dataclasses.replace(batches, cut_to=tuple(cut_to))

    def pack(self, micro_batches: int, steps: int) -> "Batches":
        """Returns these batches packed for a number of steps, each of micro-batches over all devices."""
        if self.batch_size % micro_batches:
            raise UserError(
                f"batch_size is {self.batch_size}: expected a multiple of {micro_batches} micro-batches"
            )
        batches = dataclasses.replace(self, micro_batches=micro_batches)
        most = self.batch_size // micro_batches * self.examples.sequences
        rows = choose_lengths([batches.rows(step) for step in range(steps)], most, 1)
        return dataclasses.replace(batches, cut_to=tuple(rows))

    @property
    def steps(self) -> int:
        """Steps that read every example once; in training, the last may read some of the next epoch."""
        return -(-self.examples.records // self.batch_size)

    def numbers(self, step: int) -> np.ndarray:
        """Returns the numbers of the examples of a step, counted from 0: int64 [batch_size]."""
        records = self.examples.records
        positions = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        if not self.repeat:
            return np.where(positions < records, self._sorted[np.minimum(positions, records - 1)], FILLER)
        epochs = positions // records
        parts = [
            self._of_epoch(int(epoch))[positions[epochs == epoch] % records] for epoch in np.unique(epochs)
        ]
        numbers = np.concatenate(parts)
        if self.micro_batches < 2:
            return numbers
        # Dealt by length, back and forth, so that the micro-batches need about the same number of rows.
        dealt = numbers[np.argsort(-self._lengths[numbers], kind="stable")].reshape(-1, self.micro_batches)
        dealt[1::2] = dealt[1::2, ::-1]
        return dealt.T.ravel()

    def length(self, step: int) -> int | None:
        """Returns the tokens that a step's rows are cut to (packed: their number); None: rows are whole."""
        if not self.cut_to:
            return None
        needed = self.rows(step) if self.micro_batches else self.longest(step)
        index = int(np.searchsorted(self.cut_to, needed))
        if index == len(self.cut_to):
            raise UserError(f"step {step} needs {needed} packed rows: expected at most {self.cut_to[-1]}")
        return self.cut_to[index]

    def longest(self, step: int) -> int:
        numbers = self.numbers(step)
        return int(self._lengths[numbers[numbers != FILLER]].max())

    def starts(self, step: int) -> np.ndarray:
        """Returns where texts begin in packed rows, int32 [B, sequences], each as long as the longest."""
        sequences = self.examples.sequences
        rooms = np.repeat(self._lengths[self.numbers(step)], sequences).reshape(self.micro_batches, -1)
        starts = [best_fit(part, self.examples.seq_len) for part in rooms]
        return np.concatenate(starts).reshape(-1, sequences)

    def rows(self, step: int) -> int:
        """Returns the packed rows of the fullest micro-batch of a step."""
        return int(self.starts(step).max()) // self.examples.seq_len + 1

    @functools.cached_property
    def _lengths(self) -> np.ndarray:
        return self.examples.lengths()

    @functools.cached_property
    def _sorted(self) -> np.ndarray:
        if self.by_length:  # the longest first, so that a lack of memory shows at once
            return np.argsort(-self._lengths, kind="stable")
        return np.arange(self.examples.records)

    @functools.cached_property
    def _of_epoch(self):
        return functools.lru_cache(maxsize=2)(self._shuffled)  # a batch between two epochs needs both

    def _shuffled(self, epoch: int) -> np.ndarray:
        """Returns the order of an epoch; the examples that share a batch with other epochs are not sorted."""
        rng = np.random.default_rng([self.seed, epoch])
        records, size = self.examples.records, self.batch_size
        order = rng.permutation(records)
        if self.classes is not None:
            order = self._in_turn(epoch * records + order)
        if not self.by_length:
            return order
        begin = min(records, -epoch * records % size)
        end = begin + (records - begin) // size * size
        for first in range(begin, end, self.window * size):
            window = order[first : min(end, first + self.window * size)]  # a view
            window[:] = window[np.argsort(self._lengths[window], kind="stable")]
        order[begin:end] = rng.permutation(order[begin:end].reshape(-1, size)).ravel()
        return order

    def _in_turn(self, draws: np.ndarray) -> np.ndarray:
        """Returns the examples for `draws`, numbered over all epochs; draw n is of class n mod C."""
        numbers = np.empty(len(draws), np.int64)
        for index, members in enumerate(self._members):
            of_class = np.flatnonzero(draws % len(self._members) == index)
            passes, positions = np.divmod(draws[of_class] // len(self._members), len(members))
            for number in np.unique(passes):
                now = passes == number
                shuffled = np.random.default_rng([self.seed, index, number]).permutation(members)
                numbers[of_class[now]] = shuffled[positions[now]]
        return numbers

    @functools.cached_property
    def _members(self) -> list[np.ndarray]:
        """The numbers of the examples of each class that has any."""
        return [np.flatnonzero(self.classes == one) for one in np.unique(self.classes)]


def best_fit(lengths: np.ndarray, row_len: int) -> np.ndarray:
    """Packs texts of lengths [n], the longest first, each into the fullest row that has room; returns starts.

    These count through the rows one after the other.
    """
    starts, rows = np.empty(len(lengths), np.int32), 0
    free: list[tuple[int, int]] = []  # room and number of each row, ascending
    for text in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[text])
        place = bisect.bisect_left(free, (length, -1))
        if place < len(free):
            room, row = free.pop(place)
        else:
            room, row, rows = row_len, rows, rows + 1
        starts[text] = (row + 1) * row_len - room
        bisect.insort(free, (room - length, row))
    return starts


def row_lengths(input_ids: np.ndarray, seq_len: int) -> np.ndarray:
    """Returns the tokens of each example's longest sequence, int32 [n]; input_ids is [n, sequences * T]."""
    is_token = np.asarray(input_ids).reshape(len(input_ids), -1, seq_len) != PAD_ID
    return is_token.sum(-1).max(-1, initial=0).astype(np.int32)


def choose_lengths(longest: Sequence[int], most: int, multiple: int = MULTIPLE, least: int = 1) -> list[int]:
    """Chooses at most 8 lengths for rows' longest tokens by batch that leave the least padding.

    Each saves at least 2 %, and is a multiple except for `most`, the tokens of a stored row.
    """
    needed = np.clip(np.maximum(longest, least), 1, most)
    rounded = np.minimum(-(-needed // multiple) * multiple, most)
    lengths, counts = np.unique(rounded if len(rounded) else [most], return_counts=True)
    batches = np.concatenate([[0], np.cumsum(counts)])  # number of batches that fit the first i lengths
    positions = (batches[None, 1:] - batches[:-1, None]) * lengths.astype(float)  # [i, j]: of those after i
    positions[np.tril_indices(len(lengths), -1)] = np.inf
    # The fewest positions of the batches that the first j lengths hold, with one length more each time, and
    # after how many of them the last one begins.
    fewest, begins = [positions[0]], [np.zeros(len(lengths), int)]
    while len(fewest) < min(_MOST_LENGTHS, len(lengths)):
        ways = positions + np.concatenate([[0.0], fewest[-1][:-1]])[:, None]
        before, after = fewest[-1][-1], ways.min(axis=0)[-1]
        if before - after < max(_WORTH * before, most):
            break
        fewest.append(ways.min(axis=0))
        begins.append(ways.argmin(axis=0))
    chosen, end = [], len(lengths)
    while end:
        chosen.append(int(lengths[end - 1]))
        end = int(begins.pop()[end - 1])
    return chosen[::-1]


def write_lengths(folder: epath.Path, lengths: np.ndarray, digest: str) -> None:
    """Writes `lengths.npz` of a set: int32 [records], and the digest of its examples."""
    buffer = io.BytesIO()
    np.savez(buffer, lengths=lengths, digest=digest, checksum=_checksum(lengths))
    files.write(folder / LENGTHS_FILE, buffer.getvalue())


def read_lengths(folder: epath.Path, digest: str, records: int, seq_len: int) -> np.ndarray | None:
    """Reads `lengths.npz` of a set: int32 [records]; None if there is none, or one without a checksum."""
    path = folder / LENGTHS_FILE
    if not path.exists():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes())) as arrays:
            if "checksum" not in arrays:
                return None
            lengths, found, checksum = arrays["lengths"], str(arrays["digest"]), str(arrays["checksum"])
    except (ValueError, EOFError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}): {FIX}") from None
    if found != digest:
        raise UserError(f"{path} is of other examples than those next to it: {FIX}")
    is_index = lengths.shape == (records,) and lengths.dtype == np.int32
    if not is_index or (lengths != lengths.clip(0, seq_len)).any():
        raise UserError(
            f"{path} is damaged ({lengths.dtype} {list(lengths.shape)}, expected int32 [{records}] up to "
            f"{seq_len}): {FIX}"
        )
    if _checksum(lengths) != checksum:
        raise UserError(f"{path} is damaged (its lengths differ from their checksum): {FIX}")
    return lengths


def _checksum(lengths: np.ndarray) -> str:
    return hashlib.sha256(lengths.tobytes()).hexdigest()

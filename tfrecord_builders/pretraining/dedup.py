"""Chooses documents of a corpus: the first of duplicates, and those held out.

Documents are compared by fingerprints of 64 bits, of all their lines. Finding duplicates takes about 20 bytes
of memory a document: 2 GB for 100 million of them, in which two different ones collide with a probability of
3 in 10,000.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tfrecord_builders import corpus
from tfrecord_builders.corpus import CorpusShard, Selection
from xlnet_tf.errors import UserError

MAX_SLICES_TOGETHER = 256  # corpus shards in one of the held-out set
_DIGEST_BYTES = 8
_BLOCK = 1 << 20


def group_slices(slices: Iterable[CorpusShard]) -> Iterator[tuple[CorpusShard, ...]]:
    """Groups the shards of a corpus, in order, so that no document continues beyond its group."""
    group: list[CorpusShard] = []
    for one in slices:
        if group and group[-1].parts[-1].ends_document:
            yield tuple(group)
            group = []
        if group:
            group[0] = group[0].without_text()
            one = one.without_text()
        group.append(one)
    if group:
        yield tuple(group)


def fingerprints(documents: Sequence[bytes]) -> list[int]:
    """Returns the fingerprints of documents: of stripped lines, joined by line ends, in UTF-8."""
    return [_value(hashlib.blake2b(document, digest_size=_DIGEST_BYTES)) for document in documents]


def fingerprint_group(group: Sequence[CorpusShard]) -> list[dict[str, Any]]:
    """Returns each slice's fingerprints, as json values, of the documents of which it has a part.

    `continues` is whether the first of them continues from the previous shard.
    """
    digests: list[Any] = []  # of documents, the last one open
    found: list[dict[str, Any]] = []
    is_open = False
    for one in group:
        lines = corpus.read_lines(one)
        documents = lines.documents_text()
        continues = is_open and lines.continues and bool(documents)
        if continues:
            digests[-1].update(b"\n" + documents[0])
        first = len(digests) - continues
        digests += [hashlib.blake2b(text, digest_size=_DIGEST_BYTES) for text in documents[continues:]]
        found.append({"range": range(first, len(digests)), "continues": continues})
        is_open = bool(lines.lines) and bool(lines.lines[-1])
    values = [_value(digest) for digest in digests]
    return [
        {"fingerprints": values[one["range"].start : one["range"].stop], "continues": one["continues"]}
        for one in found
    ]


def is_held_out(values: np.ndarray, dev_fraction: float) -> np.ndarray:
    """Returns bool [documents]: which are held out, by fingerprints uint64 [documents] alone."""
    return values < np.uint64(int(dev_fraction * 2.0**64))


def count_duplicates(arrays: Sequence[np.ndarray]) -> int:
    """Counts fingerprints, in arrays of uint64, that equal an earlier one."""
    values = np.concatenate([np.zeros(0, np.uint64), *arrays])
    values.sort()
    blocks = (values[begin : begin + _BLOCK + 1] for begin in range(0, len(values) - 1, _BLOCK))
    return sum(int(np.count_nonzero(block[1:] == block[:-1])) for block in blocks)


class Choice:
    """Which documents of a corpus go where: duplicates of earlier ones, and those held out.

    Args:
        slices: results of `fingerprint_group` for each slice, in order; fingerprints as uint64 [documents].
        dev_fraction: share of held-out documents, chosen by their fingerprints: equal documents are on the
            same side, whatever else is in the corpus.
    """

    def __init__(self, slices: Iterable[dict[str, Any]], dedup: bool, dev_fraction: float):
        arrays, continues = [], []
        for one in slices:
            arrays.append(one["fingerprints"])
            continues.append(one["continues"])
        self._ends = np.cumsum([len(array) for array in arrays])
        values = np.concatenate([np.zeros(0, np.uint64), *arrays])
        self._held_out = is_held_out(values, dev_fraction)
        self._repeated = equal_to_earlier(values)
        self._continues = np.zeros(len(values), bool)
        begins = self._ends - np.diff(self._ends, prepend=0)
        for index in begins[continues]:  # what is true of a document's first part is true of its others
            self._continues[index] = True
            self._repeated[index] = self._repeated[index - 1]
        self._dedup = dedup
        self.held_out, self.documents = (
            int(np.count_nonzero(side & ~self._continues)) for side in (self._held_out, True)
        )
        first_parts = self._repeated & ~self._continues
        self.duplicates = {
            held_out: int(np.count_nonzero(first_parts & (self._held_out == held_out)))
            for held_out in (False, True)
        }

    def __len__(self) -> int:
        return len(self._ends)

    def selection(self, first: int, stop: int, held_out: bool) -> Selection:
        """Returns the documents of corpus shards `first` to `stop` - 1, read as one, on a side."""
        begin, end = (int(self._ends[index - 1]) if index else 0 for index in (first, stop))
        begins = ~self._continues[begin:end]
        is_one = begins.copy()
        is_one[:1] = True  # what continues from before these shards needs a bit of its own, too
        begins = begins[is_one]
        mine = (self._held_out[begin:end] == held_out)[is_one]
        dropped = self._repeated[begin:end][is_one] & self._dedup
        return Selection(
            keep_mask=np.packbits(mine & ~dropped).tobytes(),
            documents=len(mine),
            continues=not begins[:1].all(),
            duplicates=int(np.count_nonzero(begins & mine & dropped)),
            other_set=int(np.count_nonzero(begins & ~mine)),
        )


def select(
    slices: Iterable[CorpusShard], choice: Choice, dev_fraction: float
) -> Iterator[tuple[bool, CorpusShard]]:
    """Distributes the documents of a corpus to the shards of one set, or of two.

    Yields (whether it is held out, the corpus shard with its selection), numbered in each set. A held-out
    shard is made from 1 / dev_fraction corpus shards, 256 at most, so that it is about as large as others.
    """
    together = min(round(1 / dev_fraction), MAX_SLICES_TOGETHER) if dev_fraction else 0
    waiting: list[CorpusShard] = []  # for the held-out set
    dev_slices = 0
    count = 0
    for one in slices:
        count += 1
        if count > len(choice):
            raise _changed()
        source_bytes = round(one.source_bytes * (1 - dev_fraction))
        selection = choice.selection(one.index, one.index + 1, False)
        yield False, dataclasses.replace(one, source_bytes=source_bytes, selection=selection)
        if dev_fraction:
            waiting.append(
                dataclasses.replace(one.without_text(), source_bytes=one.source_bytes - source_bytes)
            )
            if len(waiting) == together or count == len(choice):
                yield True, _joined(dev_slices, waiting, choice)
                waiting = []
                dev_slices += 1
    if count != len(choice):
        raise _changed()


def _joined(index: int, slices: Sequence[CorpusShard], choice: Choice) -> CorpusShard:
    """Returns the held-out documents of consecutive corpus shards as one corpus shard."""
    return CorpusShard(
        index=index,
        parts=tuple(part for one in slices for part in one.parts),
        source_bytes=sum(one.source_bytes for one in slices),
        continues=slices[0].continues,
        selection=choice.selection(slices[0].index, slices[-1].index + 1, True),
    )


def equal_to_earlier(values: np.ndarray) -> np.ndarray:
    """Returns bool [N]: whether a value equals an earlier one of the values [N]."""
    repeated = np.zeros(len(values), bool)
    order = np.argsort(values, kind="stable")  # the first of equal ones stays first
    for begin in range(0, len(values) - 1, _BLOCK):  # a block at a time, to save memory
        indices = order[begin : begin + _BLOCK + 1]
        block = values[indices]
        repeated[indices[1:][block[1:] == block[:-1]]] = True
    return repeated


def _value(digest: Any) -> int:
    return int.from_bytes(digest.digest(), "little")


def _changed() -> UserError:
    return UserError(
        "the corpus has changed since its documents were compared: do not change a corpus during a build; "
        "start again"
    )

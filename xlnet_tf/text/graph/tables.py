"""Tables of integers as TensorFlow operations: a number for each integer, or a list of them.

Only few code points, or piece ids, are special, and they lie close together. A table is cut into pages of 256
entries, and equal pages (most are empty) are stored once.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_PAGE = 256


class PageTable:
    """A table with one small number for each integer from 0 to its size."""

    def __init__(self, values: Sequence[int]):
        rows = np.pad(np.asarray(values, np.uint16), (0, -len(values) % _PAGE)).reshape(-1, _PAGE)
        # Big-endian bytes sort as the numbers do; np.unique(axis=0) takes a hundred times as long.
        pages = [row.tobytes() for row in rows.astype(">u2")]
        distinct = {page: number for number, page in enumerate(sorted(set(pages)))}
        self._cells = np.frombuffer(b"".join(distinct), ">u2").astype(np.uint16).reshape(-1, _PAGE)
        self._pages = np.array([distinct[page] for page in pages], np.uint16)

    def lookup(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns int32 [K], the numbers of int32 [K] keys."""
        pages = tf.cast(tf.gather(self._pages, keys // _PAGE), tf.int32)
        return tf.cast(tf.gather(self._cells.reshape(-1), pages * _PAGE + keys % _PAGE), tf.int32)


class Replaced(NamedTuple):
    """The result of `Replacements.apply` for K values; all are int32 [R]."""

    values: tf.Tensor  # replacements
    sources: tf.Tensor  # which of the K values each replaces
    positions: tf.Tensor  # in `Replacements.flat`; -1: an unchanged value


class Replacements:
    """Replaces some integers below `size` by lists of integers, which `flat` has one after another."""

    def __init__(self, lists: Mapping[int, Sequence[int]], size: int):
        entries = np.zeros(size, np.uint16)
        entries[list(lists)] = np.arange(1, len(lists) + 1)
        self._entries = PageTable(entries)
        # Entry 0 stands for unchanged values.
        self._counts = np.array([1, *map(len, lists.values())], np.int32)
        self._starts = np.array([0, *(np.cumsum(self._counts[1:]) - self._counts[1:])], np.int32)
        self.flat = np.array([value for values in lists.values() for value in values], np.int32)

    def apply(self, values: tf.Tensor, keep: tf.Tensor | None = None) -> Replaced:
        """Replaces int32 [K] values; those that bool [K] `keep` does not mark vanish."""
        entries = self._entries.lookup(values)
        counts = tf.gather(self._counts, entries)
        if keep is not None:
            counts = tf.where(keep, counts, 0)
        sources = tf.repeat(tf.range(tf.size(values)), counts)
        entries = tf.gather(entries, sources)
        # A list begins after the replacements of all earlier values.
        ordinals = tf.range(tf.size(sources)) - tf.gather(tf.cumsum(counts, exclusive=True), sources)
        positions = tf.where(entries > 0, tf.gather(self._starts, entries) + ordinals, -1)
        replaced = tf.gather(np.append(self.flat, np.int32(0)), positions % (len(self.flat) + 1))
        return Replaced(tf.where(positions < 0, tf.gather(values, sources), replaced), sources, positions)

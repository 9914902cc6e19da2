"""The best way to split short texts into pieces, and its lead over the second best; many texts at once.

Shapes: V pieces of the vocabulary, F texts, L bytes of the longest, C bytes of all texts with a mark after
each, M places in the texts where a piece of the vocabulary fits, N pieces of all best ways.
"""

import itertools
from collections.abc import Sequence

import numpy as np

_END = 0xFF  # the mark after a text; not a byte of UTF-8
# Bytes of a character, by its first byte; 0 for those that follow.
_CHARACTER_BYTES = np.repeat([1, 0, 2, 3, 4, 0], [0x80, 0x40, 0x20, 0x10, 8, 8]).astype(np.int32)


class Viterbi:
    """A unigram model, which adds up the scores of pieces [V], in UTF-8, and of unknown characters."""

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float], unknown: float):
        self._trie = _Trie(pieces)
        # The last four are unknown characters of 1 to 4 bytes.
        self._scores = np.append(scores, [unknown] * 4)
        self._sizes = np.array([*map(len, pieces), 1, 2, 3, 4], np.int32)

    def split(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Splits texts, of 1 to 255 bytes in UTF-8, the longest first, in the best way.

        Returns pieces, int32 [N], -1 for unknown characters; how many each text has, int32 [F]; and by how
        much the best way's score exceeds the second best's, float64 [F], infinite if there is one way.
        """
        data = np.frombuffer(bytes([_END]).join([*texts, b""]), np.uint8)
        sizes = np.fromiter(map(len, texts), np.int32, len(texts))
        text = np.repeat(np.arange(len(texts), dtype=np.int32), sizes + 1)  # [C], each byte's
        starts, pieces = self._trie.find(data)
        character = _CHARACTER_BYTES[data]
        unknown = character > 0
        unknown[starts[self._sizes[pieces] == character[starts]]] = False
        unknown = np.flatnonzero(unknown)
        starts = np.append(starts, unknown)
        pieces = np.append(pieces, len(self._sizes) - 5 + character[unknown])

        # All texts' bytes with the same offset are adjacent, those of the longest texts first.
        count = np.searchsorted(-sizes, -np.arange(sizes[0] + 1), side="right")  # texts of that many bytes
        row = np.cumsum(count) - count  # [L + 1], where an offset's bytes begin
        text = text[starts]
        offset = starts - (np.cumsum(sizes + 1) - sizes - 1)[text]
        leads, last = self._find_ways(text, offset, pieces, row, count.sum())
        return *self._read_back(sizes, row, last), leads[row[sizes] + np.arange(len(texts))]

    def _find_ways(self, text, offset, pieces, row, size):
        """Finds the best way from a text's begin to each byte, mapped by `row`: its lead and last piece."""
        best, second = np.full(size, -np.inf), np.full(size, -np.inf)
        last = np.zeros(size, np.int32)
        best[: row[1]] = 0
        # A step takes the pieces of one size that begin at one offset: no two of them end at the same byte,
        # and all ways up to their begins have been found.
        step = (offset << 8 | self._sizes[pieces]).astype(np.uint16)
        order = np.argsort(step, kind="stable")
        text, pieces, step = text[order], pieces[order], step[order]
        scores = self._scores[pieces]
        borders = [*np.flatnonzero(np.diff(step, prepend=0)).tolist(), len(step)]
        for some in itertools.starmap(slice, itertools.pairwise(borders)):
            offset, size = divmod(int(step[some.start]), 256)
            begin, end = row[offset] + text[some], row[offset + size] + text[some]
            score, before = best[begin] + scores[some], best[end]
            others = np.maximum(second[begin] + scores[some], second[end])
            second[end] = np.maximum(others, np.minimum(score, before))
            best[end] = np.maximum(score, before)
            last[end] = np.where(score > before, pieces[some], last[end])
        with np.errstate(invalid="ignore"):  # there is no way to some of the bytes
            return best - second, last

    def _read_back(self, sizes, row, last):
        """Returns the pieces int32 [N] of the best ways, and how many each text has, int32 [F]."""
        lengths, ways = np.zeros(len(sizes), np.int32), []
        text, offset = np.arange(len(sizes)), sizes
        while len(text):
            piece = last[row[offset] + text]
            ways.append((text, piece))
            lengths[text] += 1
            offset = offset - self._sizes[piece]
            text, offset = text[offset > 0], offset[offset > 0]
        ends = np.cumsum(lengths)
        pieces = np.empty(ends[-1], np.int32)
        for number, (text, piece) in enumerate(ways):
            pieces[ends[text] - 1 - number] = np.where(piece < len(self._sizes) - 4, piece, -1)
        return pieces, lengths


class _Trie:
    """Finds the pieces that begin at each byte: the child by byte `b` of node `n` is at `_rows[n] + b`."""

    def __init__(self, pieces: Sequence[bytes]):
        data = np.frombuffer(b"".join(pieces), np.uint8)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        begins = np.cumsum(lengths) - lengths
        node = np.zeros(len(pieces), np.int64)  # that each piece has led to: 0 is the root
        edges, count = [], 1  # 256 * parent + byte, of node 1, 2, ...
        for depth in range(lengths.max()):
            longer = np.flatnonzero(lengths > depth)
            keys = node[longer] << 8 | data[begins[longer] + depth]
            distinct, number = np.unique(keys, return_inverse=True)
            node[longer] = count + number
            edges.append(distinct)
            count += len(distinct)
        parent, byte = np.divmod(np.concatenate(edges), 256)
        lowest = np.append(True, parent[1:] != parent[:-1])
        highest = np.append(lowest[1:], True)
        width = byte[highest] - byte[lowest] + 1
        row = 256 + np.cumsum(width) - width - byte[lowest]  # no entry is before the first
        self._rows = np.zeros(count, np.int32)
        self._rows[parent[lowest]] = row
        self._owners = np.full(row[-1] + 512, -1, np.int32)
        self._children = np.zeros(len(self._owners), np.int32)
        entries = self._rows[parent] + byte
        self._owners[entries], self._children[entries] = parent, np.arange(1, count)
        self._pieces = np.full(count, -1, np.int32)
        self._pieces[node] = np.arange(len(pieces))

    def find(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns where pieces begin in uint8 [C], and which, int32 [M] each; none has the last byte."""
        starts = np.arange(len(data), dtype=np.int32)
        node = np.zeros(len(data), np.int32)
        matches, depth = [(starts[:0], node[:0])], 0
        while len(starts):
            entries = self._rows[node] + data[starts + depth]
            alive = self._owners[entries] == node
            starts, node = starts[alive], self._children[entries[alive]]
            piece = self._pieces[node]
            matches.append((starts[piece >= 0], piece[piece >= 0]))
            depth += 1
        starts, pieces = map(np.concatenate, zip(*matches))
        return starts, pieces

"""The text of a corpus shard, recovered from its records."""

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from xlnet_tf.records import segments
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.spec import BACKWARD, FORWARD
from xlnet_tf.text.special_tokens import EOD_ID, SEP_ID

UNKNOWN = -1  # a token of the text that no record has
_ANCHOR = 8  # tokens by which longer stretches are looked up
_FACTOR = 0x9E3779B97F4A7C15  # odd: it has an inverse modulo 2**64
_CHUNK = 2048


def halves(shard: Shard) -> list[tuple[int, range]]:
    """Returns (direction, numbers of its records) for both directions of a shard."""
    return [
        (FORWARD, range(shard.forward_segments)),
        (BACKWARD, range(shard.forward_segments, shard.records)),
    ]


def chunks(part: range) -> Iterator[slice]:
    """Yields slices that cover a range, so that temporary arrays stay small."""
    for start in range(part.start, part.stop, _CHUNK):
        yield slice(start, min(part.stop, start + _CHUNK))


def a_lengths(ids: np.ndarray, reuse_len: int) -> np.ndarray:
    """Returns int [S], the tokens of A in each record; 0 where no SEP follows the reused part."""
    return np.argmax(ids[:, reuse_len:] == SEP_ID, axis=1).astype(np.int32)


def contiguous(manifest: Manifest, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns bool [S]: whether B surely follows A in the text.

    It never does with the original's rules, which may cut tokens off A's end and off B's.
    """
    return (columns["next_sentence"] == 1) & (not manifest.compat)


def source_positions(
    ids: np.ndarray, b_follows: np.ndarray, number: np.ndarray, reuse_len: int
) -> np.ndarray:
    """Returns int32 [S, T], tokens' positions in reading direction; -1: SEP, CLS and B from elsewhere.

    `ids` [S, T] are the records, `number` [S] theirs in their direction, `b_follows` [S] whether B follows A.
    """
    separator = reuse_len + a_lengths(ids, reuse_len)[:, None]  # [S, 1]
    column = np.arange(ids.shape[1], dtype=np.int32)
    positions = number[:, None].astype(np.int32) * reuse_len + column - (column > separator)
    nowhere = (column == separator) | ((column > separator) & ~b_follows[:, None])
    nowhere[:, -2:] = True
    positions[nowhere] = -1
    return positions


class RecoveredText:
    """The text of a corpus shard, recovered from the `usable` (bool [S]) records of one shard.

    `tokens` [N] are read forward, UNKNOWN where no record has them; `document_starts` are by direction and in
    its reading order, from the <eod> tokens.
    """

    def __init__(
        self, manifest: Manifest, shard: Shard, columns: Mapping[str, np.ndarray], usable: np.ndarray
    ):
        self.tokens = np.full(shard.statistics["tokens"][0]["in"], UNKNOWN, np.int32)
        self._vocab_size = manifest.tokenizer["vocab_size"]
        self._short_windows: dict[int, np.ndarray] = {}
        b_follows = contiguous(manifest, columns)
        for width in (manifest.seq_len, manifest.reuse_len):  # reused parts come last: they decide
            for direction, part in halves(shard):
                for chunk in chunks(part):
                    rows = np.flatnonzero(usable[chunk]) + chunk.start
                    ids = columns["input_ids"][rows]
                    where = source_positions(ids, b_follows[rows], rows - part.start, manifest.reuse_len)[
                        :, :width
                    ]
                    inside = (where >= 0) & (where < len(self.tokens))
                    self.tokens[self._forward(where[inside], direction)] = ids[:, :width][inside]
        self.known = bool((self.tokens != UNKNOWN).all())
        starts = np.append(0, np.flatnonzero(self.tokens[:-1] == EOD_ID) + 1)
        self.document_starts = {FORWARD: starts, BACKWARD: segments.mirror_starts(starts, len(self.tokens))}

    def _forward(self, positions: np.ndarray, direction: int) -> np.ndarray:
        return positions if direction == FORWARD else len(self.tokens) - 1 - positions

    def expected(self, positions: np.ndarray, direction: int) -> np.ndarray:
        """Returns the tokens at positions in reading direction; UNKNOWN outside of the text."""
        inside = (positions >= 0) & (positions < len(self.tokens))
        tokens = np.full(positions.shape, UNKNOWN, np.int32)
        tokens[inside] = self.tokens[self._forward(positions[inside], direction)]
        return tokens

    def contains(
        self,
        stretches: np.ndarray,
        lengths: np.ndarray,
        before: np.ndarray,
        after: np.ndarray,
        direction: int,
    ) -> np.ndarray:
        """Returns bool [Q]: which stretches occur, or may in unknown text, outside of a window of each.

        `stretches` [Q, L] are padded after their `lengths`; they may begin up to `before` or from `after` on.
        """
        column = np.arange(stretches.shape[1])
        valid = column < lengths[:, None]
        if direction == BACKWARD:
            source = np.where(valid, lengths[:, None] - 1 - column, 0)
            stretches = np.take_along_axis(stretches, source, axis=1)
            count = len(self.tokens) - lengths
            before, after = count - after, count - before
        hashed = self._mixed[stretches] * self._powers[: len(column)] * valid  # [Q, L]
        whole = hashed.sum(axis=1, dtype=np.uint64)
        contained = np.zeros(len(stretches), bool)

        def fits(query, position):
            """Whether stretches [...] lie at positions [...]."""
            end = position + lengths[query]
            ok = (end <= len(self.tokens)) & ((position <= before[query]) | (position >= after[query]))
            position, end = position[ok], end[ok]
            ok[ok] = (self._sums[end] - self._sums[position]) * self._inverses[position] == whole[query][ok]
            return ok

        for query in np.flatnonzero(lengths < _ANCHOR):
            length = int(lengths[query])
            if length not in self._short_windows:
                self._short_windows[length] = self._windows(length)
            positions = np.flatnonzero(self._short_windows[length] == whole[query])
            contained[query] = fits(np.full(len(positions), query), positions).any()
        query = np.flatnonzero(lengths >= _ANCHOR)
        order, keys = self._anchors
        anchor = hashed[query, :_ANCHOR].sum(axis=1, dtype=np.uint64)
        candidate, last = (np.searchsorted(keys, anchor, side=side) for side in ("left", "right"))
        while len(query):
            left = candidate < last
            query, candidate, last = query[left], candidate[left], last[left]
            ok = fits(query, order[candidate])
            contained[query[ok]] = True
            query, candidate, last = query[~ok], candidate[~ok] + 1, last[~ok]
        if not self.known:
            for query in np.flatnonzero(~contained):
                stretch = stretches[query, : lengths[query]]
                contained[query] = self._may_contain(stretch, before[query], after[query])
        return contained

    def _may_contain(self, stretch: np.ndarray, before: int, after: int) -> bool:
        """Returns whether a stretch may lie in unknown text."""
        gaps = np.append(0, np.cumsum(self.tokens == UNKNOWN))
        begin = np.arange(max(0, len(self.tokens) - len(stretch) + 1))
        begin = begin[gaps[len(stretch) :][: len(begin)] > gaps[: len(begin)]]
        begin = begin[(begin <= before) | (begin >= after)]
        windows = self.tokens[begin[:, None] + np.arange(len(stretch))]
        return bool(((windows == stretch) | (windows == UNKNOWN)).all(axis=1).any())

    # Windows are compared by their hash: sum of mixed(token) * factor ** offset, modulo 2**64.

    @functools.cached_property
    def _mixed(self) -> np.ndarray:
        """A random number for each token id; the last one is for UNKNOWN, -1."""
        return np.random.default_rng(0).integers(0, 1 << 64, self._vocab_size + 1, np.uint64)

    @functools.cached_property
    def _powers(self) -> np.ndarray:
        return _powers(_FACTOR, len(self.tokens) + 1)

    @functools.cached_property
    def _inverses(self) -> np.ndarray:
        return _powers(pow(_FACTOR, -1, 1 << 64), len(self.tokens) + 1)

    @functools.cached_property
    def _sums(self) -> np.ndarray:
        """Hash of the first n tokens, uint64 [N + 1]."""
        return np.append(np.uint64(0), np.cumsum(self._mixed[self.tokens] * self._powers[:-1]))

    def _windows(self, length: int) -> np.ndarray:
        """Hash of the window of `length` tokens at each position."""
        count = max(0, len(self.tokens) + 1 - length)
        return (self._sums[length:] - self._sums[:count]) * self._inverses[:count]

    @functools.cached_property
    def _anchors(self) -> tuple[np.ndarray, np.ndarray]:
        """All positions sorted by the hash of the tokens that begin there, and these hashes."""
        windows = self._windows(_ANCHOR)
        order = np.argsort(windows)
        return order, windows[order]


def _powers(factor: int, count: int) -> np.ndarray:
    powers = np.full(count, factor, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers)

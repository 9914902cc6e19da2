"""Checks whether rows of text are read in their stated directions.

Forward and backward rows hold the same text, and any text repeats itself. So stretches of tokens are compared
with reversed ones: a stretch that two rows share must run the same way if and only if the rows do.
"""

import numpy as np

_LENGTH = 8  # tokens of a stretch
_KEPT = 1024  # stretches of a row
_FEWEST = 8  # in common, to decide
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Sketch:
    """A sample of a row's stretches: those with the smallest hashes, so that rows sample the same ones."""

    def __init__(self, vocab_size: int):
        self._mixed = np.random.default_rng(0).integers(0, 1 << 64, vocab_size, np.uint64)
        self.keys = np.zeros(0, np.uint64)
        self.turned = np.zeros(0, bool)

    def add(self, text: np.ndarray) -> None:
        """Adds tokens, int [N]."""
        mixed = self._mixed[text]
        count = max(0, len(text) - _LENGTH + 1)
        ahead, back = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        for offset in range(_LENGTH):
            ahead = ahead * _FACTOR + mixed[offset : offset + count]
            back = back * _FACTOR + mixed[_LENGTH - 1 - offset : _LENGTH - 1 - offset + count]
        ahead, back = (value ^ value >> np.uint64(29) for value in (ahead, back))
        differ = ahead != back
        keys = np.append(self.keys, np.minimum(ahead, back)[differ])
        turned = np.append(self.turned, (back < ahead)[differ])
        self.keys, first = np.unique(keys, return_index=True)
        self.keys, self.turned = self.keys[:_KEPT], turned[first[:_KEPT]]


def contradiction(sketches: list[Sketch], backward: np.ndarray) -> tuple[int, int] | None:
    """Returns two rows whose shared text contradicts their directions, backward bool [rows], or None."""
    keys = np.concatenate([sketch.keys for sketch in sketches])
    rows = np.repeat(np.arange(len(sketches)), [len(sketch.keys) for sketch in sketches])
    turned = np.concatenate([sketch.turned for sketch in sketches]) ^ backward[rows]
    order = np.argsort(keys, kind="stable")
    keys, rows, turned = keys[order], rows[order], turned[order]
    common = keys[1:] == keys[:-1]
    wrong = common & (turned[1:] != turned[:-1])
    if common.sum() < _FEWEST or 2 * wrong.sum() <= common.sum():
        return None
    first = int(np.argmax(wrong))
    return int(rows[first]), int(rows[first + 1])

"""Cuts texts that are longer than a sequence into overlapping windows, each word predicted once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class WordWindow(NamedTuple):
    """A run of words, by their numbers in the text."""

    # start, stop: the words that the model reads
    start: int
    stop: int
    # predict_start, predict_stop: those of them that this window predicts, and no other one does
    predict_start: int
    predict_stop: int


def windows(lengths: Sequence[int], room: int, stride: int) -> list[WordWindow]:
    """Lays windows of whole words over a text; those that would predict nothing are left out.

    A word is predicted by the window that shows most of the text around it, that is, has most pieces on the
    shorter side. The stride between two starts, in pieces, is approximate: windows start at words.
    """
    stops = np.cumsum(lengths)
    starts = stops - lengths
    spans, first = [], 0
    while not spans or spans[-1][1] < len(lengths):
        last = int(np.searchsorted(stops, starts[first] + room, side="right"))
        spans.append((first, last))
        first = min(max(int(np.searchsorted(starts, starts[first] + stride)), first + 1), last)
    # Words before the middle of two windows' overlap have more text after them in the first window than
    # before them in the second one, and belong to the first. A word's position is the mean of start and stop.
    borders = [0]
    for (_, stop), (start, _) in zip(spans, spans[1:]):
        borders.append(int(np.searchsorted(starts + stops, starts[start] + stops[stop - 1], side="right")))
    borders.append(len(lengths))
    return [
        WordWindow(*span, begin, end) for span, begin, end in zip(spans, borders, borders[1:]) if begin < end
    ]

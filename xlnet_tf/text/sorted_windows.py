"""Sorts rows by size within windows, and deals them into batches of similar size."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

_Row = TypeVar("_Row")


def sorted_windows(
    rows: Iterable[_Row],
    size: Callable[[_Row], int | None],
    batch: int | Callable[[int], int],
    most_rows: int = sys.maxsize,
    most: int = sys.maxsize,
    earlier_first: bool = False,
) -> Iterator[tuple[list[_Row], list[list[int]]]]:
    """Yields windows of rows, each with its batches: indices of its rows, largest first.

    A row of size None is in no batch; a batch's number of rows may follow from its first row's size. A window
    ends after most_rows, or a total size of `most`; of equal rows the earlier or the later comes first.
    """
    window: list[_Row] = []
    sizes: list[int | None] = []
    total = 0
    for row in rows:
        window.append(row)
        sizes.append(size(row))
        total += sizes[-1] or 0
        if len(window) >= most_rows or total >= most:
            yield window, _batches(sizes, batch, earlier_first)
            window, sizes, total = [], [], 0
    if window:
        yield window, _batches(sizes, batch, earlier_first)


def _batches(
    sizes: Sequence[int | None], batch: int | Callable[[int], int], earlier_first: bool
) -> list[list[int]]:
    size_of = {index: size for index, size in enumerate(sizes) if size is not None}
    order = sorted(size_of if earlier_first else reversed(size_of), key=size_of.__getitem__, reverse=True)
    batches, begin = [], 0
    while begin < len(order):
        end = begin + (batch(size_of[order[begin]]) if callable(batch) else batch)
        batches.append(order[begin:end])
        begin = end
    return batches


def text_bytes(row: Mapping[str, str | Sequence[str]]) -> int:
    texts = (text for value in row.values() for text in ([value] if isinstance(value, str) else value))
    return sum(len(text.encode()) for text in texts)

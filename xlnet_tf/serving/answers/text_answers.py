"""Answers texts as a served model does: any number of rows, in their order, in bounded memory.

    read a window of rows -> sort by length -> tokenize and compute, batch by batch -> the rows' own order

While the model computes a batch, the next one is tokenized; while it computes a window, the next one is read.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.schema import is_whole
from xlnet_tf.serving.answers.signatures import TensorInfo, check_size, plain
from xlnet_tf.text.inputs import check_no_table, check_text
from xlnet_tf.text.sorted_windows import sorted_windows, text_bytes

_WINDOW = 64  # batches that are sorted together
_WINDOW_BYTES = 1 << 24  # of text, after which a window ends early
_AT_ONCE = 2  # batches: one is tokenized, one computed

Row = Mapping[str, str | Sequence[str]]


class BatchPredictor(Protocol):
    """Answers a batch of rows."""

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Returns an answer for each row, without padding."""

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """The outputs, batch axis included, sorted by name, as a SavedModel keeps no order."""


class Served(Protocol):
    """A model that answers texts: an ExportableModel, or what it was exported to."""

    def input_ranks(self) -> Mapping[str, int]:
        """Returns the inputs by name: 1 for a text, 2 for a list of texts."""

    def batch_predictor(self) -> BatchPredictor:
        """Returns the function that answers a batch of rows."""


def answer_texts(served: Served, rows: Iterable[Row], batch_size: int) -> Iterator[dict[str, Any]]:
    """Yields a model's answers to rows, texts or lists of them by name, in their order."""
    if not is_whole(batch_size) or batch_size < 1:
        raise UserError(f"batch_size is {batch_size!r}; expected a whole number of at least 1")
    serve = served.batch_predictor()
    windows = sorted_windows(rows, text_bytes, batch_size, _WINDOW * batch_size, _WINDOW_BYTES)
    pool = ThreadPoolExecutor(_AT_ONCE)
    started = (
        [(batch, pool.submit(serve, [window[row] for row in batch])) for batch in batches]
        for window, batches in windows
    )
    try:
        ahead = deque(itertools.islice(started, 1))
        while ahead:
            ahead.extend(itertools.islice(started, 1))
            answers: dict[int, dict[str, Any]] = {}
            for batch, answered in ahead.popleft():
                answers |= zip(batch, answered.result(), strict=True)
            yield from map(answers.__getitem__, range(len(answers)))
    finally:  # an interrupted caller does not wait for what it will not read
        pool.shutdown(cancel_futures=True)


def normalize_inputs(
    ranks: Mapping[str, int], texts: Sequence[Any], inputs: Mapping[str, Any]
) -> tuple[list[Row], bool]:
    """Makes rows from texts given by a user, and says whether they are a list of rows or a single one.

    For `ranks` see Served.input_ranks; `texts` are values of the first inputs.
    """
    names = ", ".join(name if rank == 1 else f"{name} (a list)" for name, rank in ranks.items())
    given = {name: _as_lists(value) for name, value in (dict(zip(ranks, texts)) | inputs).items()}
    if len(texts) + len(inputs) != len(ranks) or given.keys() != ranks.keys():
        found = ", ".join([*map(short_repr, texts), *inputs])
        raise UserError(f"this model answers {names}; found {found or 'nothing'}.")
    for name, value in given.items():
        check_no_table(value, name)
    deciding = [name for name, rank in ranks.items() if rank == 1] or [*ranks]
    lists = {name: _depth(given[name]) >= ranks[name] for name in deciding}
    many = any(lists.values())
    if not all(lists.values()) and many:
        one, several = (next(name for name, is_list in lists.items() if is_list == kind) for kind in (0, 1))
        raise UserError(
            f"{several} is a list, {one} is {short_repr(given[one])}; expected lists of "
            "equal length, or one text each."
        )
    columns = {name: given[name] if many else [given[name]] for name in ranks}
    for (name, column), rank in zip(columns.items(), ranks.values()):
        if not isinstance(column, list):
            raise UserError(f"{name} is {short_repr(column)}; expected a text, or a list of them.")
        for index, value in enumerate(column):
            where = f"{name}[{index}]" if many else name
            if rank == 1:
                check_text(value, where)
                check_size(value, where)
                continue
            if _depth(value) != 1:
                raise UserError(f"{where} is {short_repr(value)}; expected a list of texts.")
            for number, text in enumerate(value):
                check_text(text, f"{where}[{number}]")
                check_size(text, f"{where}[{number}]")
    if len({len(column) for column in columns.values()}) > 1:
        counts = ", ".join(f"{len(column)} of {name}" for name, column in columns.items())
        raise UserError(f"there are {counts}; expected as many of each.")
    return [dict(zip(columns, row)) for row in zip(*columns.values())], many


def _depth(value: Any) -> int:
    """Returns 0 for a text, 1 for a list of texts, 2 for a list of lists."""
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _as_lists(value: Any) -> Any:
    """Converts tuples, arrays, iterators and pandas columns to lists, also nested; other values stay."""
    if hasattr(value, "tolist"):  # of pandas, in the order of the rows, whatever their numbers
        value = value.tolist()
    return [*map(_as_lists, value)] if isinstance(value, list | tuple | Iterator) else value


def split_rows(answers: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Returns the answers of a batch row by row, as lists of str, float, int or bool."""
    columns = {name: plain(values) for name, values in answers.items()}
    return [dict(zip(columns, row)) for row in zip(*columns.values(), strict=True)]

"""Answers texts as a served model does: any number of rows, in their order, in bounded memory.

    read a window of rows -> sort by length -> tokenize and compute, batch by batch -> the rows' own order

While the model computes a batch, the next one is tokenized; while it computes a window, the next one is read.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from xlnet_tf.serving.module import ServingModule, Signature
from xlnet_tf.serving.signatures import plain

_WINDOW = 64  # batches that are sorted together
_WINDOW_BYTES = 1 << 24  # of text, after which a window ends early
_AT_ONCE = 2  # batches: one is tokenized, one computed
_MULTIPLE = 8

Row = Mapping[str, str | Sequence[str]]


def padding_buckets(seq_len: int) -> list[int]:
    """Returns the lengths that leave little padding; without a compiler, many cost no more than few."""
    return [*range(_MULTIPLE, seq_len, _MULTIPLE)]


def answer_texts(module: ServingModule, rows: Iterable[Row], batch_size: int) -> Iterator[dict[str, Any]]:
    """Yields what a served model answers to rows, in their order.

    Args:
        module: what is served; with padding_buckets, rows are as long as their text.
        rows: the module's inputs by name: texts, or lists of texts.
        batch_size: rows that are computed together.
    """
    specs = {name: _spec(spec) for name, spec in module.input_specs().items()}
    serve = tf.function(module.answer, autograph=False).get_concrete_function(**specs)
    windows = _windows(iter(rows), _WINDOW * batch_size)
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        ahead = deque(_start(pool, serve, window, batch_size) for window in itertools.islice(windows, 1))
        while ahead:
            ahead.extend(_start(pool, serve, window, batch_size) for window in itertools.islice(windows, 1))
            order, batches = ahead.popleft()
            answers: list[dict[str, Any]] = [{}] * len(order)
            found = itertools.chain.from_iterable(batch.result() for batch in batches)
            for row, answer in zip(order, found, strict=True):
                answers[row] = answer
            yield from answers
    finally:  # an interrupted caller does not wait for what it will not read
        pool.shutdown(cancel_futures=True)


def _windows(rows: Iterator[Row], count: int) -> Iterator[tuple[list[Row], list[int]]]:
    """Yields rows that are sorted together, with the bytes of each."""
    while window := [*itertools.islice(rows, 1)]:
        sizes = [_bytes(window[0])]
        total = sizes[0]
        while len(window) < count and total < _WINDOW_BYTES and (row := next(rows, None)) is not None:
            window.append(row)
            sizes.append(_bytes(row))
            total += sizes[-1]
        yield window, sizes


def _bytes(row: Row) -> int:
    texts = itertools.chain.from_iterable(
        [value] if isinstance(value, str) else value for value in row.values()
    )
    return sum(len(text.encode()) for text in texts)


def _spec(spec: tf.TensorSpec) -> tf.TensorSpec | tf.RaggedTensorSpec:
    """Returns an input's type where the lists of rows have lengths of their own."""
    return tf.RaggedTensorSpec(spec.shape, spec.dtype, 1, tf.int64) if spec.shape.rank > 1 else spec


def _start(pool: ThreadPoolExecutor, serve: Signature, window, batch_size: int):
    """Returns the order in which a window is computed, longest first, and its batches' answers to come."""
    rows, sizes = window
    order = np.argsort(sizes, kind="stable")[::-1]
    return order, [
        pool.submit(_answer, serve, [rows[row] for row in order[begin : begin + batch_size]])
        for begin in range(0, len(order), batch_size)
    ]


def _answer(serve: Signature, rows: Sequence[Row]) -> list[dict[str, Any]]:
    inputs = {}
    for name, spec in serve.structured_input_signature[1].items():
        values = [row[name] for row in rows]
        is_text = isinstance(spec, tf.TensorSpec)
        inputs[name] = tf.constant(values) if is_text else tf.ragged.constant(values, spec.dtype, 1)
    answers = {name: plain(values.numpy()) for name, values in serve(**inputs).items()}
    return [dict(zip(answers, row)) for row in zip(*answers.values(), strict=True)]

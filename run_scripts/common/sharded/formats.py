"""Files of answered rows: JSON lines, parquet and TFRecord; the same rows give the same bytes."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from etils import epath

from run_scripts.common.answers import json_line
from xlnet_tf import files
from xlnet_tf.records.shards import framed
from xlnet_tf.serving.answers.signatures import plain

Outputs = Mapping[str, tuple[np.dtype, int]]  # name -> type (object: text) and rank of one row's value
Write = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
_GROUP_BYTES = 1 << 24  # of a row group of parquet


@contextlib.contextmanager
def writing(path: epath.Path, columns: Sequence[str], outputs: Outputs) -> Iterator[Write]:
    """Opens a file, which appears at the block's end; yields a function that writes a row and its answer.

    The format is that of the suffix: .jsonl has all columns of each row, others `columns` as texts.
    """
    kinds = {".jsonl": _json_lines, ".parquet": _parquet, ".tfrecord": _tfrecord}
    with files.replacing(path, "wb") as file, kinds[path.suffix](file, columns, outputs) as write:
        yield write


@contextlib.contextmanager
def _json_lines(file: IO[bytes], columns: Sequence[str], outputs: Outputs) -> Iterator[Write]:
    del columns, outputs

    def write(row: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        file.write(json_line({**row, **plain_answer(answer)}).encode())

    yield write


def plain_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an answer with JSON types, its parts sorted by name."""
    arrays = (np.ndarray, np.generic)
    return {name: plain(np.asarray(v)) if isinstance(v, arrays) else v for name, v in sorted(answer.items())}


@contextlib.contextmanager
def _tfrecord(file: IO[bytes], columns: Sequence[str], outputs: Outputs) -> Iterator[Write]:
    from tensorflow.core.example import example_pb2, feature_pb2

    def feature(values: np.ndarray, dtype: np.dtype) -> feature_pb2.Feature:
        if dtype.kind == "O":
            texts = [text.encode() for text in values.tolist()]
            return feature_pb2.Feature(bytes_list=feature_pb2.BytesList(value=texts))
        if dtype.kind == "f":
            return feature_pb2.Feature(float_list=feature_pb2.FloatList(value=values))
        return feature_pb2.Feature(int64_list=feature_pb2.Int64List(value=values.astype(np.int64)))

    def write(row: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        found = {
            name: feature(np.array([text], object), np.dtype(object)) for name, text in _texts(row, columns)
        }
        for name, (dtype, _) in outputs.items():
            found[name] = feature(np.array(answer[name], dtype).reshape(-1), dtype)
        example = example_pb2.Example(features=feature_pb2.Features(feature=found))
        file.write(framed(example.SerializeToString(deterministic=True)))

    yield write


@contextlib.contextmanager
def _parquet(file: IO[bytes], columns: Sequence[str], outputs: Outputs) -> Iterator[Write]:
    import pyarrow
    import pyarrow.parquet

    fields = {name: pyarrow.string() for name in columns if name not in outputs}
    for name, (dtype, rank) in outputs.items():
        kind = pyarrow.string() if dtype.kind == "O" else pyarrow.from_numpy_dtype(dtype)
        for _ in range(rank):
            kind = pyarrow.list_(kind)
        fields[name] = kind
    schema = pyarrow.schema([*fields.items()])
    waiting: list[dict[str, Any]] = []
    size = 0

    def flush() -> None:
        nonlocal size
        writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
        waiting.clear()
        size = 0

    def write(row: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        nonlocal size
        values = {name: _lists(answer[name]) for name in outputs}
        waiting.append({**dict(_texts(row, columns)), **values})
        size += sum(map(_size, waiting[-1].values()))
        if size > _GROUP_BYTES:
            flush()

    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        yield write
        if waiting:
            flush()


def _texts(row: Mapping[str, Any], columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields a row's columns as texts: JSON for other values."""
    for name in columns:
        value = row.get(name)
        if value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _lists(value: Any) -> Any:
    """Converts arrays of several axes to lists of arrays, as Arrow takes them."""
    return [*map(_lists, value)] if isinstance(value, np.ndarray) and value.ndim > 1 else value


def _size(value: Any) -> int:
    """Returns the approximate size of a value in bytes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(_size, value)) if isinstance(value, list) else len(value) if isinstance(value, str) else 8

"""Parquet files with a document in each row.

Memory holds a page of the column and a few rows; a corpus shard has at most four times the requested text.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from etils import epath

from tfrecord_builders.common.columnar import reading
from tfrecord_builders.common.streams import BLOCK_BYTES, StreamCache
from tfrecord_builders.corpus.documents import MAX_DOCUMENT_BYTES, PartOfRows
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.rows import CorpusRow, plain_value
from xlnet_tf.errors import UserError

_BATCH_ROWS = 16  # a row may have MAX_DOCUMENT_BYTES
_MOST_UNDERESTIMATED = 4  # times: a repeated text is stored once, so that stored sizes may be too small
_SUSPICIOUS_BYTES, _SUSPICIOUS_RATIO = 1 << 27, 1000  # of a row group's text: its pages are unpacked whole


@dataclasses.dataclass(frozen=True)
class ParquetPart(PartOfRows):
    """Consecutive rows of a file; the row groups' sizes may underestimate their bytes, at most fourfold."""

    path: str

    def texts(self) -> Iterator[str]:
        field = self.options.text_field
        for first, batch in _batches(epath.Path(self.path), field, self.start, self.stop, [field]):
            column = batch.column(0)
            try:
                texts = column.to_pylist()
            except UnicodeDecodeError:
                texts = [self._text(first + index, value) for index, value in enumerate(column)]
            for text in texts:
                yield text or ""

    def rows(self, cache: StreamCache) -> Iterator[CorpusRow]:
        del cache
        field = self.options.text_field
        for first, batch in _batches(epath.Path(self.path), field, self.start, self.stop):
            columns = [_plain_values(column) for column in batch.columns]
            for row, values in enumerate(zip(*columns), first):
                yield CorpusRow(self.path, row, dict(zip(batch.schema.names, values)), numbered=True)

    def _text(self, row: int, value: pyarrow.Scalar) -> str | None:
        try:
            return value.as_py()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{_location(self.path, row)}, column {self.options.text_field!r} is not UTF-8 (byte "
                f"0x{error.object[error.start]:02x} at byte {error.start + 1} of its text): repair the file"
            ) from None


class ParquetSource:
    """A parquet file, which must have a string column with the options' name."""

    def __init__(self, path: epath.Path, options: CorpusOptions):
        self.path = path
        self.name = path.name
        self.num_bytes = path.stat().length
        self.options = options
        with _open(path, options.text_field) as file:
            self.row_ends = _row_group_ends(file)
            metadata = file.metadata
            paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
            column = paths.index(options.text_field)
            groups = range(metadata.num_row_groups)
            sizes = [metadata.row_group(g).column(column).total_uncompressed_size for g in groups]
            for group in groups:
                stored = metadata.row_group(group).column(column).total_compressed_size
                if sizes[group] > max(_SUSPICIOUS_BYTES, _SUSPICIOUS_RATIO * stored):
                    raise UserError(
                        f"{path}, row group {group + 1}: {stored:,} bytes unpack to {sizes[group]:,}, over "
                        f"{_SUSPICIOUS_RATIO:,} times as many. Write it again with fewer rows in a group"
                    )
            self.byte_ends = np.cumsum(sizes, dtype=np.int64)

    def open(self) -> "_ParquetSplitter":
        return _ParquetSplitter(self)

    def lengths(self) -> Iterator[int]:
        """Yields the bytes of each row's text; reads the column."""
        field = self.options.text_field
        for first, batch in _batches(self.path, field, 0, int(self.row_ends[-1]), [field]):
            column = batch.column(0).cast(pyarrow.large_string())  # dictionaries and views have no lengths
            for row, length in enumerate(pyarrow.compute.binary_length(column).to_pylist(), first):
                if (length or 0) > MAX_DOCUMENT_BYTES:
                    raise UserError(
                        f"{_location(self.path, row)}: a text of {length:,} bytes, expected at most "
                        f"{MAX_DOCUMENT_BYTES:,}: split it into documents"
                    )
                yield length or 0

    def bytes_before(self, row: int) -> int:
        """Estimates the bytes of text before a row, as if a group's rows had equal length."""
        return int(np.interp(row, np.append(0, self.row_ends), np.append(0, self.byte_ends)))

    def row_at(self, num_bytes: int) -> int:
        return int(np.ceil(np.interp(num_bytes, np.append(0, self.byte_ends), np.append(0, self.row_ends))))


class _ParquetSplitter(contextlib.AbstractContextManager):
    """Splits a file by the sizes of its row groups, or by its texts if these are far longer."""

    def __init__(self, source: ParquetSource):
        self._source = source
        self._lengths = source.lengths()
        self._row = 0

    def __exit__(self, *_) -> None:
        self._lengths.close()

    @property
    def _rows(self) -> int:
        return int(self._source.row_ends[-1]) if len(self._source.row_ends) else 0

    @property
    def at_end(self) -> bool:
        return self._row >= self._rows

    @property
    def source_position(self) -> int:
        return self._source.num_bytes * self._row // max(self._rows, 1)

    def read_part(self, target: int, slack: int) -> ParquetPart:
        """Returns rows of about `target` bytes; up to `slack` more if that ends a row group."""
        source, start = self._source, self._row
        wanted = source.bytes_before(start) + target
        group = min(int(np.searchsorted(source.byte_ends, wanted)), len(source.byte_ends) - 1)
        if source.byte_ends[group] <= wanted + slack:
            stop = int(source.row_ends[group])
        else:
            stop = source.row_at(wanted)
        stop = min(max(stop, start + 1), self._rows)
        estimate = source.bytes_before(stop) - source.bytes_before(start)
        longest = _MOST_UNDERESTIMATED * max(target, estimate)
        num_bytes = 0
        while self._row < stop and num_bytes < longest:
            num_bytes += next(self._lengths)
            self._row += 1
        num_bytes = max(
            source.bytes_before(self._row) - source.bytes_before(start), num_bytes // _MOST_UNDERESTIMATED
        )
        return ParquetPart(start, self._row, num_bytes, source.options, str(source.path))


def _batches(
    path: epath.Path, field: str, start: int, stop: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Yields (first row, a few rows) with some columns, or all."""
    with _open(path, field) as file:
        ends = _row_group_ends(file)
        groups = range(np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop) + 1)
        row = int(ends[groups[0] - 1]) if groups[0] else 0
        for batch in file.iter_batches(
            _BATCH_ROWS, row_groups=list(groups), columns=columns, use_threads=False
        ):
            first, row = row, row + batch.num_rows
            if row > start:
                yield max(first, start), batch[max(start - first, 0) : stop - first]
            if row >= stop:
                return


@contextlib.contextmanager
def _open(path: epath.Path, field: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Opens a file that has the text's column; read errors name the file."""
    with reading(path, "parquet", field), path.open("rb") as raw:
        file = pyarrow.parquet.ParquetFile(raw, buffer_size=BLOCK_BYTES)
        schema = file.schema_arrow
        if (count := schema.names.count(field)) > 1:
            raise UserError(
                f"{path} has {count} columns with the name {field!r}, expected one: rename the others"
            )
        if not count:
            raise UserError(
                f"{path} has the columns {', '.join(schema.names)}, expected {field!r}: "
                "name the column with the text by --text_field"
            )
        if not _are_strings(kind := schema.field(field).type):
            raise UserError(f"{path}: column {field!r} holds {kind}, expected strings")
        yield file


def field_of_rows(path: epath.Path, field: str) -> str:
    """Returns the column whose lengths decide where rows are split: `field`, else the first of strings."""
    with contextlib.suppress(pyarrow.ArrowException, OSError), path.open("rb") as raw:
        schema = pyarrow.parquet.read_schema(raw)
        if field not in schema.names:
            return next((column.name for column in schema if _are_strings(column.type)), field)
    return field


def _are_strings(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    is_one = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_string_view)
    return any(is_string(kind) for is_string in is_one)


def _row_group_ends(file: pyarrow.parquet.ParquetFile) -> np.ndarray:
    rows = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
    return np.cumsum(rows, dtype=np.int64)


def _plain_values(column: pyarrow.Array) -> list[Any]:
    """Converts a column to JSON values, including types that Python lacks."""
    try:
        return [plain_value(value) for value in column.to_pylist()]
    except Exception:  # of the types of Python and pandas
        return [_plain_scalar(value) for value in column]


def _plain_scalar(value: pyarrow.Scalar) -> Any:
    with contextlib.suppress(Exception):
        return plain_value(value.as_py())
    kind = value.type
    if pyarrow.types.is_struct(kind):
        return {name: _plain_scalar(part) for name, part in value.items()}
    if pyarrow.types.is_nested(kind):
        return [_plain_scalar(part) for part in value.values]
    if pyarrow.types.is_dictionary(kind):
        return _plain_scalar(value.value)
    if _are_strings(kind):
        return plain_value(value.as_buffer().to_pybytes())
    if pyarrow.types.is_timestamp(kind) and kind.tz:  # that nobody knows
        return _plain_scalar(value.cast(pyarrow.timestamp(kind.unit, "UTC")))
    with contextlib.suppress(Exception):  # of years after 9999
        return value.cast(pyarrow.string()).as_py()
    return f"{value.value} {kind}"


def _location(path: epath.PathLike, row: int) -> str:
    return f"{path}, row {row + 1}"

"""Tables with named columns, csv and tsv, compressed or not: rows for predictions, no documents."""

import contextlib
import csv
import dataclasses
import re
from collections.abc import Iterator
from typing import NamedTuple

from etils import epath

from tfrecord_builders.common.streams import BLOCK_BYTES, Stream, StreamCache
from tfrecord_builders.common.tables import MAX_FIELD, csv_reason, delimiter_of, line_end
from tfrecord_builders.corpus.files import file_format
from tfrecord_builders.corpus.rows import Row, not_utf8
from tfrecord_builders.corpus.text import BYTE_ORDER_MARK, MAX_DOCUMENT_BYTES
from xlnet_tf.errors import UserError


class Dialect(NamedTuple):
    """How the rows of a file are written.

    Attributes:
        delimiter: what separates fields, a character.
        end: what ends a line, a byte.
        quoted: whether double quotes enclose fields: in csv they do, in tsv they are text.
    """

    delimiter: str
    end: bytes
    quoted: bool

    @classmethod
    def of(cls, path: epath.Path, first: bytes) -> "Dialect":
        """Returns that of a file which begins so."""
        kind, end = file_format(path).kind, line_end(first)
        header = first.partition(end)[0].decode(errors="replace")
        return cls(delimiter_of(header, kind), end, kind == "csv")


@dataclasses.dataclass(frozen=True)
class TablePart:
    """A stretch of whole rows of a file.

    Args:
        start: first byte, counted in the uncompressed file.
        num_bytes: length of the stretch, uncompressed.
        columns: their names.
        dialect: how they are written.
        text: its bytes, where the file is compressed; None: to be read from the file.
    """

    path: str
    start: int
    num_bytes: int
    columns: tuple[str, ...]
    dialect: Dialect
    text: bytes | None = dataclasses.field(repr=False)
    ends_document = True

    def rows(self, cache: StreamCache) -> Iterator[Row]:
        """Yields the rows; one with other fields than the table has columns is an error."""
        data = self.text if self.text is not None else cache.read(self.path, self.start, self.num_bytes)
        begin = 0
        while begin < len(data):
            end = row_end(data, begin, begin, self.dialect) or len(data)
            yield from self._row(data[begin:end], self.start + begin)
            begin = end

    def _row(self, line: bytes, start: int) -> Iterator[Row]:
        try:
            fields = split(line.decode().rstrip("\r\n"), self.dialect)
        except UnicodeDecodeError as error:
            yield Row(self.path, start, error=not_utf8(error))
            return
        except csv.Error as error:
            yield Row(self.path, start, error=f"bad quoting ({csv_reason(error)})")
            return
        if fields == [""] and len(self.columns) > 1:
            return
        if len(fields) != len(self.columns):
            reason = f"{len(fields)} fields where there are {len(self.columns)} columns"
            yield Row(self.path, start, error=f"{reason} ({', '.join(self.columns)})")
        else:
            yield Row(self.path, start, dict(zip(self.columns, fields)))


class TableSource:
    """A csv or tsv file whose first row names the columns."""

    def __init__(self, path: epath.Path):
        self.path = path
        self.name = path.name
        self.num_bytes = path.stat().length

    def open(self) -> "_TableCutter":
        """Raises UserError if the first row is not UTF-8, or names a column twice."""
        return _TableCutter(self.path)


class _TableCutter(contextlib.AbstractContextManager):
    """A table that is cut between rows; as quotes hide line ends, it is read from its begin to its end."""

    def __init__(self, path: epath.Path):
        self._path = str(path)
        self._stream = Stream(path)
        first = self._stream.read(BLOCK_BYTES)
        self._dialect = Dialect.of(path, first)
        self._ahead = first.removeprefix(BYTE_ORDER_MARK)
        self._position = len(first) - len(self._ahead)
        header = self._next_rows(1)
        try:
            self._columns = tuple(split(header.decode().rstrip("\r\n"), self._dialect))
        except (UnicodeDecodeError, csv.Error) as error:
            reason = csv_reason(error)
            raise UserError(
                f"{path}: the first row, which names the columns, is damaged ({reason})"
            ) from None
        if len(set(self._columns)) < len(self._columns):
            raise UserError(f"{path}: two columns have the same name in {', '.join(self._columns)}")

    def __exit__(self, *_) -> None:
        self._stream.__exit__()

    @property
    def at_end(self) -> bool:
        self._ahead = self._ahead or self._stream.read(BLOCK_BYTES)
        return not self._ahead

    @property
    def source_position(self) -> int:
        return self._stream.source_position

    def take(self, target: int, slack: int) -> TablePart:
        """Takes at least `target` bytes and the rest of a row."""
        del slack
        start, text = self._position, self._next_rows(target)
        kept = text if self._stream.compression else None
        return TablePart(self._path, start, len(text), self._columns, self._dialect, kept)

    def _next_rows(self, target: int) -> bytes:
        while not (end := row_end(self._ahead, 0, target - 1, self._dialect)):
            if len(self._ahead) > target + MAX_DOCUMENT_BYTES:
                raise UserError(
                    f"{self._path}: a row of more than {MAX_DOCUMENT_BYTES:,} bytes after byte "
                    f"{self._position}: is there a quote without its other half?"
                )
            block = self._stream.read(max(BLOCK_BYTES, target))
            if not block:
                end = len(self._ahead)
                break
            self._ahead += block
        text, self._ahead = self._ahead[:end], self._ahead[end:]
        self._position += end
        return text


def row_end(data: bytes, begin: int, least: int, dialect: Dialect) -> int:
    """Returns where a row ends that holds the byte `least` of those from `begin` on; 0 if it does not."""
    if not dialect.quoted:
        return data.find(dialect.end, max(begin, least)) + 1
    end, field_end = begin, re.compile(b"[" + re.escape(dialect.delimiter.encode()) + dialect.end + b"]")
    while end <= least:
        if not (end := _quoted_row_end(data, end, dialect.end, field_end)):
            return 0
    return end


def _quoted_row_end(data: bytes, begin: int, line_mark: bytes, field_end: re.Pattern[bytes]) -> int:
    """Returns where a row of csv ends; 0 if it does not. Only a field that begins with a quote is quoted."""
    end = data.find(line_mark, begin) + 1
    if data.find(b'"', begin, end) < 0:  # as in most rows
        return end
    while True:
        if data[begin : begin + 1] == b'"' and not (begin := _after_quotes(data, begin)):
            return 0
        if not (border := field_end.search(data, begin)):
            return 0
        begin = border.end()
        if border[0] == line_mark:
            return begin


def _after_quotes(data: bytes, begin: int) -> int:
    """Returns where a quoted text ends, in which two quotes stand for one; 0 if it does not."""
    end = begin + 1
    while (end := data.find(b'"', end) + 1) and data[end : end + 1] == b'"':
        end += 1
    return end


def split(line: str, dialect: Dialect) -> list[str]:
    """Returns the fields of a row.

    Raises:
        csv.Error: its quotes are wrong.
    """
    if not dialect.quoted:
        return line.split(dialect.delimiter)
    csv.field_size_limit(MAX_FIELD)
    [fields] = csv.reader([line], delimiter=dialect.delimiter, strict=True)
    return fields or [""]

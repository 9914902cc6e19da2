"""Tables with named columns, csv and tsv, compressed or not: rows for predictions, not documents."""

import codecs
import dataclasses
import re
from collections.abc import Iterator
from typing import ClassVar

from etils import epath

from tfrecord_builders.common import delimited
from tfrecord_builders.common.streams import BLOCK_BYTES, StreamCache
from tfrecord_builders.corpus.documents import MAX_DOCUMENT_BYTES, FilePart, FileSplitter
from tfrecord_builders.corpus.files import file_format
from tfrecord_builders.corpus.rows import CorpusRow, not_utf8
from xlnet_tf.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablePart(FilePart):
    """A stretch of whole rows of a file."""

    columns: tuple[str, ...]
    dialect: delimited.Dialect
    ends_document: ClassVar[bool] = True

    def rows(self, cache: StreamCache) -> Iterator[CorpusRow]:
        """Yields the rows; a row whose fields do not match the columns has an error."""
        data, begin, end = self.read_bytes(cache), 0, 0

        def lines() -> Iterator[tuple[int, str]]:
            nonlocal end
            end = begin
            while end < len(data):
                start, end = end, data.find(self.dialect.end, end) + 1 or len(data)
                yield start, data[start:end].decode()

        while begin < len(data):
            try:
                for start, fields in delimited.split_rows(lines(), self.dialect):
                    yield from self._row(fields, self.start + start)
                    begin = end
            except (delimited.BadQuotes, UnicodeDecodeError) as error:
                end = row_end(data, begin, begin, self.dialect) or len(data)
                yield CorpusRow(self.path, self.start + begin, error=_damage(data[begin:end], error))
                begin = end

    def _row(self, fields: list[str], start: int) -> Iterator[CorpusRow]:
        if fields == [""] and len(self.columns) > 1:
            return
        if reason := delimited.ragged(fields, self.columns):
            yield CorpusRow(self.path, start, error=f"{reason} ({', '.join(self.columns)})")
        else:
            yield CorpusRow(self.path, start, dict(zip(self.columns, fields)))


def _damage(row: bytes, error: Exception) -> str:
    """Returns the reason why a row cannot be split into fields."""
    try:
        row.decode()
    except UnicodeDecodeError as undecodable:
        return not_utf8(undecodable)
    return str(error)


class TableSplitter(FileSplitter):
    """Splits a table between rows; as quotes may enclose line ends, it is read from the beginning."""

    def __init__(self, path: epath.Path):
        super().__init__(path)
        first = self._stream.read(BLOCK_BYTES)
        self._ahead = first.removeprefix(codecs.BOM_UTF8)
        self._position = len(first) - len(self._ahead)
        kind, end = file_format(path).kind, delimited.line_end(first)
        header = self._ahead.partition(end)[0].decode(errors="replace")
        self._dialect = delimited.Dialect(delimited.delimiter_of(header, kind), kind == "csv", end)
        try:
            [(_, names)] = delimited.split_rows([(0, self._next_rows(1).decode())], self._dialect)
        except (UnicodeDecodeError, delimited.BadQuotes) as error:
            raise UserError(f"{path}: the first row, which names the columns, is damaged ({error})") from None
        delimited.check_names(names, str(path))
        self._columns = tuple(names)

    def read_part(self, target: int, slack: int) -> TablePart:
        """Returns at least `target` bytes and the rest of a row."""
        del slack
        start, text = self._position, self._next_rows(target)
        stored = text if self._stream.compression else None
        return TablePart(self._path, start, len(text), stored, columns=self._columns, dialect=self._dialect)

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


def row_end(data: bytes, begin: int, least: int, dialect: delimited.Dialect) -> int:
    """Returns the end of the row with the byte `least`, scanning rows from `begin` on; 0 if it is missing."""
    if not dialect.quoted:
        return data.find(dialect.end, max(begin, least)) + 1
    end, field_end = begin, re.compile(b"[" + re.escape(dialect.delimiter.encode()) + dialect.end + b"]")
    while end <= least:
        if not (end := _quoted_row_end(data, end, dialect.end, field_end)):
            return 0
    return end


def _quoted_row_end(data: bytes, begin: int, line_mark: bytes, field_end: re.Pattern[bytes]) -> int:
    """Returns the end of a csv row; 0 if it is not there. Only a field that begins with a quote is quoted."""
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
    """Returns the end of a quoted text, in which two quotes stand for one; 0 if it is not there."""
    end = begin + 1
    while (end := data.find(b'"', end) + 1) and data[end : end + 1] == b'"':
        end += 1
    return end

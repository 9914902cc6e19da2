"""Lines of text files, and the fields of csv and tsv: for labelled tables and for rows of a corpus."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tfrecord_builders.common.rows import BadRow
from tfrecord_builders.common.streams import BLOCK_BYTES, Stream
from xlnet_tf.errors import UserError

DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}  # the usual one first
_QUOTED = re.compile(r'"[^"]*"?')
_MAX_FIELD = 1 << 24  # characters; the csv module's own limit is less than a long document


class Dialect(NamedTuple):
    """The format of a table's rows; if `quoted`, double quotes enclose delimiters and line ends."""

    delimiter: str
    quoted: bool
    end: bytes = b"\n"


def lines(stream: Stream, longest: int) -> Iterator[bytes]:
    """Yields the lines of a file with their ends; of an overlong one, at least `longest` bytes."""
    rest, end = b"", b""
    while block := stream.read(BLOCK_BYTES):
        end = end or line_end(block)
        *whole, rest = (rest + block).split(end)
        for line in whole:
            yield line + end
        if len(rest) > longest:
            break
    if rest:
        yield rest


def line_end(first: bytes) -> bytes:
    """Returns the line end of a file from its first bytes: a carriage return or a line feed."""
    outside = _QUOTED.sub("", first.decode("latin-1")) if b"\r" in first else ""
    return b"\r" if "\r" in outside[:-1] and "\n" not in outside else b"\n"


def delimiter_of(header: str, kind: str) -> str:
    """Returns a table's delimiter: the usual one of its kind, or another in the header."""
    marks, names = DELIMITERS[kind], _QUOTED.sub("", header)
    return next((mark for mark in marks if mark in names), marks[0])


class BadQuotes(BadRow):
    """The reason why a row of csv cannot be split, and where the row begins."""

    def __init__(self, reason: str, first: int):
        super().__init__(f"bad quoting ({reason})")
        self.first = first


def split_rows(lines: Iterable[tuple[int, str]], dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yields the beginning and the fields of each row, [""] for a blank line; reads no line beyond it.

    `lines` are (beginning as the caller counts, line). Raises BadQuotes if the next row cannot be split.
    """
    if not dialect.quoted:
        for first, line in lines:
            yield first, line.rstrip("\r\n").split(dialect.delimiter)
        return
    first: int | None = None

    def texts() -> Iterator[str]:
        nonlocal first
        for at, line in lines:
            first = at if first is None else first
            yield line

    csv.field_size_limit(_MAX_FIELD)
    try:
        for fields in csv.reader(texts(), delimiter=dialect.delimiter, strict=True):
            begin, first = first, None
            yield begin, fields or [""]
    except csv.Error as error:
        is_return = "new-line" in str(error)
        reason = "a carriage return outside of quotes" if is_return else str(error)
        raise BadQuotes(reason, first) from None


def check_names(names: Sequence[str], location: str) -> None:
    if len(set(names)) < len(names):
        raise UserError(f"{location}: two columns have the same name in {', '.join(names)}")


def ragged(fields: Sequence[str], names: Sequence[str]) -> str:
    """Describes how a row has too few or too many fields; "" if it does not."""
    if len(fields) == len(names):
        return ""
    return f"{len(fields)} fields where there are {len(names)} columns"

"""Files of lines: plain text, and jsonl with a document on each line; compressed or not."""

import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator

from etils import epath

from tfrecord_builders.corpus import streams
from tfrecord_builders.corpus.documents import PartText, document_lines, part_of_documents
from tfrecord_builders.corpus.files import file_format
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.rows import MAX_NUL_SHARE, Row
from tfrecord_builders.corpus.streams import Stream, StreamCache
from xlnet_tf import files
from xlnet_tf.errors import UserError, short_repr

MAX_LINE_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 1 << 26  # of a line of jsonl
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
_LINE_END = re.compile(rb"\n")
_LEADING_BLANK_LINES = re.compile(rb"(?:\s*\n)?")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}  # how such files begin
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclasses.dataclass(frozen=True)
class TextPart:
    """A stretch of whole lines of one file.

    Args:
        start: first byte, counted in the uncompressed text.
        num_bytes: length of the stretch, uncompressed.
        ends_document: whether a document ends with it (else the next part continues it).
        text: its bytes, where the file is compressed; None: to be read from the file.
    """

    path: str
    start: int
    num_bytes: int
    ends_document: bool
    options: CorpusOptions
    text: bytes | None = dataclasses.field(repr=False)

    def without_text(self) -> "TextPart":
        """Returns the part as a reference to its file."""
        return dataclasses.replace(self, text=None)

    def read(self, cache: StreamCache) -> PartText:
        """Reads the part.

        Raises:
            UserError: text is compressed or not UTF-8, a line is longer than MAX_LINE_BYTES, or a line is not
                a json object with the text; with file, line and byte.
        """
        text = self._read_bytes(cache)
        if self.start == 0 and (packed := next(filter(text.startswith, _PACKED), b"")):
            raise UserError(
                f"{self.path} is compressed, which its name does not say: let it end in {_PACKED[packed]}"
            )
        nul_bytes = text.count(0) if 0 in text else 0  # to look takes no time, to count does
        if nul_bytes > MAX_NUL_SHARE * len(text):
            first = self.start + text.find(0)
            raise UserError(
                f"{_location(self.path, first)} is a NUL byte, one of {nul_bytes:,} in {len(text):,}: this "
                "is UTF-16 or no text at all, expected UTF-8. Convert the file, for example with "
                f"`iconv -f utf-16{'le' if first % 2 else 'be'} -t utf-8`, or leave it out"
            )
        if file_format(epath.Path(self.path)).kind == "jsonl":
            return part_of_documents(self._json_texts(text), self.options.mark_paragraphs)
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            encoding = "utf-16" if self.start == 0 and text.startswith(_UTF16_MARKS) else "latin1"
            raise UserError(
                f"{_location(self.path, self.start + error.start)} is not UTF-8 "
                f"(byte 0x{text[error.start]:02x}): convert the file, for example with "
                f"`iconv -f {encoding} -t utf-8`"
            ) from None
        if self.start == 0:
            decoded = decoded.removeprefix(BYTE_ORDER_MARK.decode())
        lines = decoded.removesuffix("\n").split("\n")
        if self.options.documents == "lines":
            return part_of_documents(lines, self.options.mark_paragraphs)
        if max(map(len, lines)) > MAX_LINE_BYTES // 4:  # a character has up to 4 bytes
            self._check_line_lengths(text)
        if self.options.documents == "files":
            lines = document_lines(lines, self.options.mark_paragraphs)
            empty = not lines and self.start == 0 and self.ends_document
        else:
            lines = [line.strip() for line in lines]
            empty = 0
        nuls = {epath.Path(self.path).name: nul_bytes} if nul_bytes else {}
        return PartText(lines, text + bytes([self.ends_document]), self.num_bytes, int(empty), nuls)

    def rows(self, cache: StreamCache) -> Iterator[Row]:
        """Yields the rows: objects of jsonl, else lines or documents of text without markup."""
        data, start = self._read_bytes(cache), self.start
        if start == 0 and data.startswith(BYTE_ORDER_MARK):
            data, start = data[len(BYTE_ORDER_MARK) :], len(BYTE_ORDER_MARK)
        is_jsonl = file_format(epath.Path(self.path)).kind == "jsonl"
        as_lines = is_jsonl or self.options.documents == "lines"
        border = _LINE_END if as_lines else _BLANK_LINE if self.options.documents == "blank_lines" else None
        first = _LEADING_BLANK_LINES.match(data).end()
        begins = [first, *(found.end() for found in border.finditer(data, first))] if border else [first]
        for begin, end in itertools.pairwise([*begins, len(data)]):
            begin = _LEADING_BLANK_LINES.match(data, begin, end).end()  # a border takes only two line ends
            text = data[begin:end]
            if not text.strip():
                continue
            if end == len(data) and not (self.ends_document or as_lines):
                reason = f"a document of more than {self.num_bytes:,} bytes: give a larger --shard_mb"
                yield Row(self.path, start + begin, error=reason)
            elif is_jsonl:
                yield Row.of_json(self.path, start + begin, text)
            else:
                yield Row.of_text(self.path, start + begin, text, self.options.text_field)

    def _read_bytes(self, cache: StreamCache) -> bytes:
        if self.text is not None:
            return self.text
        text = cache.read(self.path, self.start, self.num_bytes)
        if len(text) != self.num_bytes:
            raise UserError(f"{self.path} became shorter while it was read: do not change a corpus meanwhile")
        return text

    def _json_texts(self, lines: bytes) -> Iterator[str]:
        offset = self.start
        for line in lines.split(b"\n"):
            begin, offset = offset, offset + len(line) + 1
            if begin == 0:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if not line or line.isspace():
                continue
            yield _document_text(
                line, self.options.text_field, lambda at, begin=begin: _location(self.path, begin + at)
            )

    def _check_line_lengths(self, text: bytes) -> None:
        offset = self.start
        for line in text.split(b"\n"):
            if len(line) > MAX_LINE_BYTES:
                raise UserError(_long_line(_location(self.path, offset), len(line)))
            offset += len(line) + 1


class TextSource:
    """A file of lines."""

    def __init__(self, path: epath.Path, options: CorpusOptions):
        self.path = path
        self.name = path.name
        self.num_bytes = path.stat().length
        self._options = options

    def open(self) -> "_TextCutter":
        return _TextCutter(self.path, self.num_bytes, self._options)


class _TextCutter(contextlib.AbstractContextManager):
    """A file of lines that is cut from its begin to its end; plain files are skipped through, not read."""

    def __init__(self, path: epath.Path, size: int, options: CorpusOptions):
        self._path = str(path)
        self._options = options
        self._stream = Stream(path)
        self._compressed = bool(self._stream.compression)
        self._lines_are_documents = file_format(path).kind == "jsonl" or options.documents == "lines"
        self._ahead = b""  # read from a compressed file, but not yet taken
        self._position = 0
        self._size = size

    def __exit__(self, *_) -> None:
        self._stream.__exit__()

    @property
    def source_position(self) -> int:
        return self._stream.source_position if self._compressed else self._position

    @property
    def at_end(self) -> bool:
        if self._compressed:
            self._ahead = self._ahead or self._stream.read(streams.BLOCK_BYTES)
            return not self._ahead
        return self._position >= self._size

    def take(self, target: int, slack: int) -> TextPart:
        """Takes at least `target` bytes and what follows up to a document border.

        Takes less where the file ends before. Where no border is within `slack` bytes, a line's end will do.
        """
        if self._lines_are_documents:
            border, slack, longest = _LINE_END, MAX_DOCUMENT_BYTES, 0
        else:
            border = _BLANK_LINE if self._options.documents == "blank_lines" else None
            longest = MAX_LINE_BYTES
        head = self._skip(target - 1)  # the last line may end with the target
        found, at_border, block = bytearray(), None, b"-"
        while at_border is None and block and len(found) < slack + longest:
            block, self._ahead = self._ahead or self._stream.read(streams.BLOCK_BYTES), b""
            found += block
            if border is not None:
                at_border = border.search(found)
        if at_border and at_border.start() < slack:
            taken = at_border.end()
        elif len(found) <= slack and not block:
            at_border, taken = None, len(found)
        else:
            at_border, taken = None, found.find(b"\n", slack) + 1 if longest else 0
            if not taken and (block or not longest):
                inside = self._position + target - 1 + slack
                location = _location(self._path, inside)
                if longest:
                    raise UserError(_long_line(location, longest))
                raise UserError(
                    f"{location}: a line of more than {MAX_DOCUMENT_BYTES:,} bytes: is it one json document "
                    "per line?"
                )
            taken = taken or len(found)
        ends_document = at_border is not None or (not block and taken == len(found))
        start = self._position
        if self._compressed:
            self._ahead = bytes(found[taken:])
            text = head + bytes(found[:taken])
            self._position += len(text)
        else:
            text = None
            self._position = min(self._size, start + target - 1 + taken)
        return TextPart(self._path, start, self._position - start, ends_document, self._options, text)

    def _skip(self, count: int) -> bytes:
        """Moves on by `count` bytes; returns them if the file is compressed."""
        if not self._compressed:
            self._stream.seek(self._position + count)
            return b""
        head, self._ahead = self._ahead[:count], self._ahead[count:]
        return head + self._stream.read(count - len(head))


def _location(path: str, offset: int) -> str:
    """Returns 'file, line n (byte m)' for a byte of a file; reads it again to count its lines."""
    return f"{path}, line {streams.line_number(path, offset)} (byte {offset})"


def _long_line(where: str, least: int) -> str:
    return (
        f"{where}: a line of at least {least:,} bytes, expected at most {MAX_LINE_BYTES:,}: a corpus has one "
        "sentence per line (cutting such a line would invent sentence ends). Split it into sentences, or "
        "into paragraphs and use --sentence_split"
    )


def _document_text(line: bytes, field: str, where: Callable[[int], str]) -> str:
    """Returns the text of a document.

    Args:
        line: a json object.
        field: its field that holds the text.
        where: from a byte of the line to its location, for messages.

    Raises:
        UserError: it is not a json object, or has no such field of text.
    """
    try:
        document = files.parse_json(line.decode())
    except UnicodeDecodeError as error:
        at = error.start
        raise UserError(f"{where(at)} is not UTF-8 (byte 0x{line[at]:02x})") from None
    except files.SecondKey as error:
        raise UserError(f"{where(0)}: {error}") from None
    except (ValueError, RecursionError) as error:
        found = short_repr(line.decode(errors="replace"), str)
        raise UserError(
            f"{where(0)} is not json ({error}): found {found}, expected an object with a document's text, "
            f"such as {json.dumps({field: 'A sentence.'})}"
        ) from None
    if not isinstance(document, dict):
        found = f"a {type(document).__name__}, expected an object with a field {field!r}"
        raise UserError(f"{where(0)}: found {found}")
    if field not in document:
        raise UserError(
            f"{where(0)}: found an object with the fields {short_repr(', '.join(document), str)}, expected a "
            f"field {field!r}: name the field with the text by --text_field"
        )
    if not isinstance(document[field], str):
        found = short_repr(document[field], json.dumps)
        raise UserError(f"{where(0)}: {field!r} is {found}, expected a string")
    return document[field]

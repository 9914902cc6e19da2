"""Files of lines: plain text, and jsonl with a document on each line; compressed or not."""

import codecs
import dataclasses
import itertools
import json
import re
from collections.abc import Iterator

from etils import epath

from tfrecord_builders.common import streams
from tfrecord_builders.common.rows import BadRow, NotAnObject, parse_object
from tfrecord_builders.common.streams import StreamCache, unpacking
from tfrecord_builders.corpus.documents import (
    MAX_DOCUMENT_BYTES,
    FilePart,
    FileSplitter,
    PartText,
    document_lines,
    part_of_documents,
)
from tfrecord_builders.corpus.files import file_format
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.rows import MAX_NUL_SHARE, CorpusRow
from xlnet_tf.errors import UserError, short_repr

MAX_LINE_BYTES = 1 << 20
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
_LINE_END = re.compile(rb"\n")
_LEADING_BLANK_LINES = re.compile(rb"(?:\s*\n)?")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclasses.dataclass(frozen=True)
class TextPart(FilePart):
    """A stretch of whole lines of one file; where no document ends with it, the next part continues it."""

    ends_document: bool
    options: CorpusOptions

    @property
    def _is_jsonl(self) -> bool:
        return file_format(epath.Path(self.path)).kind == "jsonl"

    def read(self, cache: StreamCache) -> PartText:
        """Reads the part; invalid text, lines or objects are UserErrors with file, line and byte."""
        text = self.read_bytes(cache)
        if self.start == 0 and (what := unpacking(text)):
            raise UserError(f"{self.path} is compressed, which its name does not say: {what}")
        nul_bytes = text.count(0) if 0 in text else 0  # to look takes no time, to count does
        if nul_bytes > MAX_NUL_SHARE * len(text):
            raise self._is_utf16(text, nul_bytes)
        if self._is_jsonl:
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
            decoded = decoded.removeprefix(codecs.BOM_UTF8.decode())
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

    def rows(self, cache: StreamCache) -> Iterator[CorpusRow]:
        """Yields the rows: objects of jsonl, else lines or documents of unprocessed text."""
        data, start = self.read_bytes(cache), self.start
        if start == 0 and data.startswith(codecs.BOM_UTF8):
            data, start = data[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
        is_jsonl = self._is_jsonl
        as_lines = is_jsonl or self.options.documents == "lines"
        border = _LINE_END if as_lines else _BLANK_LINE if self.options.documents == "blank_lines" else None
        first = _LEADING_BLANK_LINES.match(data).end()
        begins = [first, *(match.end() for match in border.finditer(data, first))] if border else [first]
        for begin, end in itertools.pairwise([*begins, len(data)]):
            begin = _LEADING_BLANK_LINES.match(data, begin, end).end()  # a border takes only two line ends
            text = data[begin:end]
            if not text.strip():
                continue
            if end == len(data) and not (self.ends_document or as_lines):
                reason = f"a document of more than {self.num_bytes:,} bytes: give a larger --shard_mb"
                yield CorpusRow(self.path, start + begin, error=reason)
            elif is_jsonl:
                yield CorpusRow.of_json(self.path, start + begin, text)
            else:
                yield CorpusRow.of_text(self.path, start + begin, text, self.options.text_field)

    def _is_utf16(self, text: bytes, nul_bytes: int) -> UserError:
        first = self.start + text.find(0)
        return UserError(
            f"{_location(self.path, first)} is a NUL byte, one of {nul_bytes:,} in {len(text):,}: this "
            "is UTF-16 or no text at all, expected UTF-8. Convert the file, for example with "
            f"`iconv -f utf-16{'le' if first % 2 else 'be'} -t utf-8`, or leave it out"
        )

    def _json_texts(self, lines: bytes) -> Iterator[str]:
        offset = self.start
        for line in lines.split(b"\n"):
            begin, offset = offset, offset + len(line) + 1
            if begin == 0:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line and not line.isspace():
                yield self._document_text(line, begin)

    def _document_text(self, line: bytes, begin: int) -> str:
        """Returns the text of a document from its line of json, which begins at byte `begin` of the file."""
        field = self.options.text_field
        try:
            document = parse_object(line.decode())
            text = document[field]
        except UnicodeDecodeError as error:
            where = _location(self.path, begin + error.start)
            raise UserError(f"{where} is not UTF-8 (byte 0x{line[error.start]:02x})") from None
        except NotAnObject as error:
            raise UserError(
                f"{_location(self.path, begin)} is {error} with a document's text, such as "
                f"{json.dumps({field: 'A sentence.'})}; found {short_repr(line.decode(), str)}"
            ) from None
        except BadRow as error:
            raise UserError(f"{_location(self.path, begin)}: {error}") from None
        except KeyError:
            raise UserError(
                f"{_location(self.path, begin)}: found an object with the fields "
                f"{short_repr(', '.join(document), str)}, expected a field {field!r}: name the field with "
                "the text by --text_field"
            ) from None
        if not isinstance(text, str):
            value = short_repr(text, json.dumps)
            raise UserError(f"{_location(self.path, begin)}: {field!r} is {value}, expected a string")
        return text

    def _check_line_lengths(self, text: bytes) -> None:
        offset = self.start
        for line in text.split(b"\n"):
            if len(line) > MAX_LINE_BYTES:
                raise _long_line(_location(self.path, offset), len(line))
            offset += len(line) + 1


class TextSplitter(FileSplitter):
    """Splits a file of lines in order; plain files are skipped through, not read."""

    def __init__(self, path: epath.Path, options: CorpusOptions):
        super().__init__(path)
        self._options = options
        self._compressed = bool(self._stream.compression)
        self._lines_are_documents = file_format(path).kind == "jsonl" or options.documents == "lines"
        self._size = path.stat().length

    @property
    def source_position(self) -> int:
        return super().source_position if self._compressed else self._position

    @property
    def at_end(self) -> bool:
        return super().at_end if self._compressed else self._position >= self._size

    def read_part(self, target: int, slack: int) -> TextPart:
        """Returns at least `target` bytes up to a document border or, beyond `slack`, a line's end."""
        if self._lines_are_documents:
            border, slack, longest = _LINE_END, MAX_DOCUMENT_BYTES, 0
        else:
            border = _BLANK_LINE if self._options.documents == "blank_lines" else None
            longest = MAX_LINE_BYTES
        head = self._skip(target - 1)  # the last line may end with the target
        tail, at_border, block = bytearray(), None, b"-"
        while at_border is None and block and len(tail) < slack + longest:
            block, self._ahead = self._ahead or self._stream.read(streams.BLOCK_BYTES), b""
            tail += block
            if border is not None:
                at_border = border.search(tail)
        if at_border and at_border.start() < slack:
            taken = at_border.end()
        elif len(tail) <= slack and not block:
            at_border, taken = None, len(tail)
        else:
            at_border, taken = None, tail.find(b"\n", slack) + 1 if longest else 0
            if not taken and (block or not longest):
                location = _location(self._path, self._position + target - 1 + slack)
                if longest:
                    raise _long_line(location, longest)
                raise UserError(
                    f"{location}: a line of more than {MAX_DOCUMENT_BYTES:,} bytes: is it one json document "
                    "per line?"
                )
            taken = taken or len(tail)
        ends_document = at_border is not None or (not block and taken == len(tail))
        start = self._position
        if self._compressed:
            self._ahead = bytes(tail[taken:])
            text = head + bytes(tail[:taken])
            self._position += len(text)
        else:
            text = None
            self._position = min(self._size, start + target - 1 + taken)
        return TextPart(self._path, start, self._position - start, text, ends_document, self._options)

    def _skip(self, count: int) -> bytes:
        """Moves on by `count` bytes; returns them if the file is compressed."""
        if not self._compressed:
            self._stream.seek(self._position + count)
            return b""
        head, self._ahead = self._ahead[:count], self._ahead[count:]
        return head + self._stream.read(count - len(head))


def _location(path: str, offset: int) -> str:
    """Returns 'file, line n (byte m)' for a byte of a file; rereads the file to count its lines."""
    return f"{path}, line {streams.line_number(path, offset)} (byte {offset})"


def _long_line(where: str, least: int) -> UserError:
    return UserError(
        f"{where}: a line of at least {least:,} bytes, expected at most {MAX_LINE_BYTES:,}: a corpus has one "
        "sentence per line (cutting such a line would invent sentence ends). Split it into sentences, or "
        "into paragraphs and use --sentence_split"
    )

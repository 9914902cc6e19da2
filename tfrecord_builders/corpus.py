"""Cuts a corpus into slices: the units that builders tokenize, without ever holding the corpus.

A corpus is UTF-8 text, one sentence per line, a blank line between documents; a file's end ends a document.
"""

import dataclasses
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Self

from etils import epath

from xlnet_tf.errors import UserError

MAX_LINE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class Part:
    """A stretch of whole lines of one file.

    Args:
        path: the file.
        start: first byte, counted in the uncompressed text.
        num_bytes: length of the stretch, uncompressed.
        ends_document: whether a document ends with it (else the next part goes on with that document).
        text: its bytes, where the file is compressed; None: to be read from the file.
    """

    path: str
    start: int
    num_bytes: int
    ends_document: bool
    text: bytes | None = dataclasses.field(repr=False)

    def read(self) -> bytes:
        """Returns the bytes of the stretch."""
        if self.text is not None:
            return self.text
        with epath.Path(self.path).open("rb") as file:
            file.seek(self.start)
            text = file.read(self.num_bytes)
        if len(text) != self.num_bytes:
            raise UserError(
                f"{self.path} became shorter while it was read: do not change a corpus during a build"
            )
        return text


@dataclasses.dataclass(frozen=True)
class Slice:
    """Consecutive parts of a corpus.

    Args:
        index: number of the slice.
        parts: its text.
        source_bytes: bytes of files (compressed or not) that were passed to make it, for progress.
    """

    index: int
    parts: tuple[Part, ...]
    source_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of uncompressed text."""
        return sum(part.num_bytes for part in self.parts)


@dataclasses.dataclass(frozen=True)
class Lines:
    """The text of a slice, line by line.

    Args:
        lines: stripped lines; "" stands for the end of a document, never twice in a row.
        text_sha256: hex digest of the text and of its document borders.
    """

    lines: list[str]
    text_sha256: str


def find_files(patterns: Sequence[str]) -> list[epath.Path]:
    """Finds the files of a corpus.

    Args:
        patterns: paths or globs (* ? []), local or remote.

    Returns:
        The files, sorted within each pattern, each once.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        UserError: a path is a folder, or all files are empty.
    """
    files = {}
    for pattern in patterns:
        path = epath.Path(pattern)
        if re.search(r"[*?\[]", pattern) and not path.exists():
            anchor = path
            while re.search(r"[*?\[]", str(anchor)):
                anchor = anchor.parent
            found = sorted(anchor.glob(str(path.relative_to(anchor))))
        else:
            found = [path] if path.exists() else []
        if not found:
            raise FileNotFoundError(f"no corpus file matches {pattern!r}: check --input")
        for path in found:
            if path.is_dir():
                raise UserError(f"{path} is a folder: name its files, for example {path / '*.txt'}")
            files[str(path)] = path
    files = list(files.values())
    if not any(path.stat().length for path in files):
        raise UserError(f"the corpus is empty: no text in {', '.join(map(str, files[:5]))}: check --input")
    return files


def plan_slices(files: Sequence[epath.Path], slice_bytes: int) -> Iterator[Slice]:
    """Cuts a corpus into slices at document borders, reading only around the cuts of plain files.

    A slice takes at least `slice_bytes` of text and ends at the first document border after that. A document
    that goes on for another `slice_bytes` is cut at a line's end. What is left at the end, if less than half
    a slice, joins the slice before. Compressed and plain files with the same text give the same slices.

    Args:
        files: what `find_files` gives.
        slice_bytes: least bytes of uncompressed text in a slice.

    Yields:
        The slices, in order.

    Raises:
        UserError: a line is longer than MAX_LINE_BYTES, or a compressed file is damaged.
    """
    waiting: Slice | None = None
    parts: list[Part] = []
    num_bytes = source_bytes = 0  # of these parts
    index = 0
    for path in files:
        with _CorpusFile(path) as file:
            passed = 0
            while not file.at_end:
                parts.append(file.take(slice_bytes - num_bytes, slice_bytes))
                num_bytes += parts[-1].num_bytes
                source_bytes += file.source_position - passed
                passed = file.source_position
                if num_bytes >= slice_bytes:
                    if waiting is not None:
                        yield waiting
                    waiting = Slice(index, tuple(parts), source_bytes)
                    index, parts, num_bytes, source_bytes = index + 1, [], 0, 0
            source_bytes += file.source_position - passed
    if waiting is not None and num_bytes < slice_bytes / 2:
        yield Slice(waiting.index, waiting.parts + tuple(parts), waiting.source_bytes + source_bytes)
    else:
        if waiting is not None:
            yield waiting
        yield Slice(index, tuple(parts), source_bytes)


def read_lines(corpus_slice: Slice) -> Lines:
    """Reads the lines of a slice.

    Raises:
        UserError: text is not UTF-8 or a line is longer than MAX_LINE_BYTES; with file, line and byte.
    """
    digest = hashlib.sha256()
    lines: list[str] = []
    for part in corpus_slice.parts:
        text = part.read()
        digest.update(text)
        digest.update(bytes([part.ends_document]))
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{_place(part.path, part.start + error.start)} is not UTF-8 "
                f"(byte 0x{text[error.start]:02x}): convert the file, for example with "
                "`iconv -f latin1 -t utf-8`"
            ) from None
        if part.start == 0:
            decoded = decoded.removeprefix(_BYTE_ORDER_MARK.decode())
        part_lines = decoded.removesuffix("\n").split("\n")
        if max(map(len, part_lines)) > MAX_LINE_BYTES // 4:  # a character has up to 4 bytes
            _check_line_lengths(part, text)
        stripped = [line.strip() for line in part_lines]
        before = [lines[-1] if lines else "", *stripped]
        lines += [line for line, previous in zip(stripped, before, strict=False) if line or previous]
        if part.ends_document and lines and lines[-1]:
            lines.append("")
    return Lines(lines, digest.hexdigest())


class _CorpusFile:
    """A corpus file that is read forward, cut by cut; plain files are skipped through, not read."""

    def __init__(self, path: epath.Path):
        self._path = path
        self._compressed = path.name.endswith(".gz")
        self._raw = path.open("rb")
        self._stream = gzip.GzipFile(fileobj=self._raw) if self._compressed else self._raw
        self._ahead = b""  # read from a compressed file, but not yet taken
        self._position = 0
        self._size = path.stat().length

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._raw.close()

    @property
    def source_position(self) -> int:
        """Bytes of the file that have been passed."""
        return self._raw.tell() if self._compressed else self._position

    @property
    def at_end(self) -> bool:
        if self._compressed:
            self._ahead = self._ahead or self._read(_BLOCK_BYTES)
            return not self._ahead
        return self._position >= self._size

    def take(self, target: int, slack: int) -> Part:
        """Takes at least `target` bytes and what follows up to a document border.

        Takes less where the file ends before. Where no border is within `slack` bytes, a line's end will do.
        """
        head = self._skip(target - 1)  # the last line may end with the target
        found = bytearray()
        border, block = None, b"-"
        while border is None and block and len(found) < slack + MAX_LINE_BYTES:
            block = self._next_block()
            found += block
            border = _BLANK_LINE.search(found)
        if border and border.start() < slack:
            taken = border.end()
        elif len(found) <= slack:
            border, taken = None, len(found)
        else:
            border, taken = None, found.find(b"\n", slack) + 1
            if not taken and block:
                inside = self._position + target - 1 + slack
                raise UserError(_long_line(_place(str(self._path), inside), MAX_LINE_BYTES))
            taken = taken or len(found)
        ends_document = border is not None or (not block and taken == len(found))
        start = self._position
        if self._compressed:
            self._ahead = bytes(found[taken:])
            text = head + bytes(found[:taken])
            self._position += len(text)
        else:
            text = None
            self._position = min(self._size, start + target - 1 + taken)
        return Part(str(self._path), start, self._position - start, ends_document, text)

    def _skip(self, count: int) -> bytes:
        """Goes on by `count` bytes; returns them if the file is compressed."""
        if not self._compressed:
            self._raw.seek(self._position + count)
            return b""
        blocks = [self._ahead[:count]]
        self._ahead = self._ahead[count:]
        left = count - len(blocks[0])
        while left and (block := self._read(left)):
            blocks.append(block)
            left -= len(block)
        return b"".join(blocks)

    def count_lines(self, end: int) -> int:
        """Counts the line ends before byte `end` of a file that has just been opened."""
        lines = 0
        while end > 0 and (block := self._read(min(end, _BLOCK_BYTES))):
            lines += block.count(b"\n")
            end -= len(block)
        return lines

    def _next_block(self) -> bytes:
        block, self._ahead = self._ahead, b""
        return block or self._read(_BLOCK_BYTES)

    def _read(self, count: int) -> bytes:
        try:
            return self._stream.read(count)
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{self._path} cannot be read to its end ({error}): is it damaged?") from None


def _check_line_lengths(part: Part, text: bytes) -> None:
    """Raises UserError if a line of a part is too long."""
    offset = 0
    for line in text.split(b"\n"):
        if len(line) > MAX_LINE_BYTES:
            raise UserError(_long_line(_place(part.path, part.start + offset), len(line)))
        offset += len(line) + 1


def _place(path: str, offset: int) -> str:
    """Returns 'file, line n (byte m)' for a byte of a file; reads it again to count its lines."""
    with _CorpusFile(epath.Path(path)) as file:
        line = 1 + file.count_lines(offset)
    return f"{path}, line {line} (byte {offset})"


def _long_line(where: str, least: int) -> str:
    return (
        f"{where}: a line of at least {least:,} bytes, expected at most {MAX_LINE_BYTES:,}: a corpus has one "
        "sentence per line (cutting such a line would invent sentence ends). Split it into sentences, or "
        "into paragraphs and use --sentence_split"
    )

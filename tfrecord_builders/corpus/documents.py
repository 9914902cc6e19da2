"""Shared by the formats of a corpus: parts of files, runs of rows, and documents as lines."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from etils import epath
from typing_extensions import Self

from tfrecord_builders.common import streams
from tfrecord_builders.common.streams import Stream, StreamCache
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.rows import CorpusRow
from xlnet_tf.errors import UserError

EOP = "<eop>"
MAX_DOCUMENT_BYTES = 1 << 26  # of a line of jsonl, a row of a table, or a text of parquet


@dataclasses.dataclass(frozen=True)
class PartText:
    """The text of a part of a corpus."""

    lines: list[str]  # stripped; "" ends a document
    raw: bytes
    num_bytes: int
    empty_documents: int = 0  # how many have no text; they are not in `lines`
    # File's name -> NUL bytes in its text, where there are any
    nul_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class FilePart:
    """A stretch of one file in uncompressed bytes; `text` holds those of compressed files."""

    path: str
    start: int
    num_bytes: int
    text: bytes | None = dataclasses.field(repr=False)

    def without_text(self) -> Self:
        """Returns the part as a reference to its file."""
        return dataclasses.replace(self, text=None)

    def read_bytes(self, cache: StreamCache) -> bytes:
        if self.text is not None:
            return self.text
        text = cache.read(self.path, self.start, self.num_bytes)
        if len(text) != self.num_bytes:
            raise UserError(f"{self.path} became shorter while it was read: do not change a corpus meanwhile")
        return text


class FileSplitter(contextlib.AbstractContextManager):
    """A file that is read forward and split into parts."""

    def __init__(self, path: epath.Path):
        self._path = str(path)
        self._stream = Stream(path)
        self._ahead = b""  # read, but not yet in a part
        self._position = 0

    def __exit__(self, *_) -> None:
        self._stream.__exit__()

    @property
    def at_end(self) -> bool:
        self._ahead = self._ahead or self._stream.read(streams.BLOCK_BYTES)
        return not self._ahead

    @property
    def source_position(self) -> int:
        return self._stream.source_position


@dataclasses.dataclass(frozen=True)
class PartOfRows:
    """A run of rows, `start` to `stop` - 1, with a document in each; `num_bytes` of text is an estimate."""

    start: int
    stop: int
    num_bytes: int
    options: CorpusOptions
    ends_document: ClassVar[bool] = True

    def without_text(self) -> Self:
        return self

    def texts(self) -> Iterable[str]:
        """Yields the texts of the rows; one without text is an empty document."""
        raise NotImplementedError

    def read(self, cache: StreamCache) -> PartText:
        del cache
        return part_of_documents(self.texts(), self.options.mark_paragraphs)

    def rows(self, cache: StreamCache) -> Iterator[CorpusRow]:
        """Yields the rows, with all their columns if the format has more than the text."""
        del cache
        for number, text in enumerate(self.texts(), self.start):
            yield CorpusRow(self.options.tfds_name, number, {self.options.text_field: text}, numbered=True)


def document_lines(lines: Iterable[str], mark_paragraphs: bool) -> list[str]:
    """Returns a document's lines, stripped, without blank ones.

    With mark_paragraphs, `<eop>` is appended to a line followed by blank lines and more text.
    """
    stripped, blank = [], False
    for line in map(str.strip, lines):
        if not line:
            blank = True
            continue
        if blank and mark_paragraphs and stripped and not stripped[-1].endswith(EOP):
            stripped[-1] += EOP
        blank = False
        stripped.append(line)
    return stripped


def part_of_documents(texts: Iterable[str], mark_paragraphs: bool) -> PartText:
    """Returns the text of whole documents; unpaired surrogates, which UTF-8 cannot hold, become U+FFFD."""
    lines, empty = [], 0
    for text in texts:
        if of_document := document_lines(text.split("\n"), mark_paragraphs):
            lines += of_document
            lines.append("")
        else:
            empty += 1
    raw = "\n".join(lines)
    try:
        raw = raw.encode()
    except UnicodeEncodeError:
        lines = raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace").split("\n")
        raw = "\n".join(lines).encode()
    return PartText(lines, raw, len(raw), empty)

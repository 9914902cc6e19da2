"""Texts of documents as lines: what the formats have in common that hold whole documents."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from typing_extensions import Self

from tfrecord_builders.common.streams import StreamCache
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.rows import Row

EOP = "<eop>"


@dataclasses.dataclass(frozen=True)
class PartText:
    """The text of a part of a corpus.

    Args:
        lines: stripped lines; "" ends a document.
        raw: bytes that say all that `lines` hold, for checksums.
        num_bytes: of text.
        empty_documents: documents without text; they are not in `lines`.
        nul_bytes: file's name -> NUL bytes in its text, where there are any.
    """

    lines: list[str]
    raw: bytes
    num_bytes: int
    empty_documents: int = 0
    nul_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class PartOfRows:
    """A run of rows with a document in each.

    Args:
        start: first row.
        stop: row after the last.
        num_bytes: of the text, estimated.
    """

    start: int
    stop: int
    num_bytes: int
    options: CorpusOptions
    ends_document: ClassVar[bool] = True

    def without_text(self) -> Self:
        return self

    def texts(self) -> Iterable[str]:
        """Reads the rows; one without text is an empty document.

        Raises:
            UserError: they cannot be read, or a text is not UTF-8.
        """
        raise NotImplementedError

    def read(self, cache: StreamCache) -> PartText:
        """Returns the text; raises what `texts` does."""
        del cache
        return part_of_documents(self.texts(), self.options.mark_paragraphs)

    def rows(self, cache: StreamCache) -> Iterator[Row]:
        """Yields the rows, with all their columns where the format has more than the text."""
        del cache
        for number, text in enumerate(self.texts(), self.start):
            yield Row(self.options.tfds_name, number, {self.options.text_field: text}, numbered=True)


def document_lines(lines: Iterable[str], mark_paragraphs: bool) -> list[str]:
    """Returns a document's lines, stripped, without blank ones.

    Args:
        lines: as they are in the document.
        mark_paragraphs: whether `<eop>` is glued to a line that blank lines, and more text, follow.
    """
    found, blank = [], False
    for line in map(str.strip, lines):
        if not line:
            blank = True
            continue
        if blank and mark_paragraphs and found and not found[-1].endswith(EOP):
            found[-1] += EOP
        blank = False
        found.append(line)
    return found


def part_of_documents(texts: Iterable[str], mark_paragraphs: bool) -> PartText:
    """Returns the text of whole documents.

    Args:
        texts: one a document. Halves of surrogate pairs, which no UTF-8 file can hold, become U+FFFD.
        mark_paragraphs: see `document_lines`.
    """
    lines, empty = [], 0
    for text in texts:
        if found := document_lines(text.split("\n"), mark_paragraphs):
            lines += found
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

"""Sources of a corpus: the files and data sets that its shards consist of."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from etils import epath

from tfrecord_builders.common.streams import StreamCache
from tfrecord_builders.corpus.documents import PartText
from tfrecord_builders.corpus.files import TABLES, Snapshot, file_format, find_files, not_a_corpus
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.rows import CorpusRow
from tfrecord_builders.corpus.text import TextSplitter


class Part(Protocol):
    """A stretch of a source."""

    num_bytes: int  # uncompressed bytes of text; an estimate where the format does not say
    ends_document: bool  # whether a document ends with it (else the next part continues it)

    def without_text(self) -> "Part":
        """Returns the part as a reference, without the text itself."""

    def read(self, cache: StreamCache) -> PartText:
        """Returns the text."""

    def rows(self, cache: StreamCache) -> Iterator[CorpusRow]:
        """Yields the rows."""


class Splitter(Protocol):
    """An open source that is read from its beginning to its end; source_position counts stored bytes."""

    at_end: bool
    source_position: int

    def read_part(self, target: int, slack: int) -> Part:
        """Returns at least `target` bytes, to a document's end unless that takes more than `slack` bytes."""


class Source(Protocol):
    """A file or a data set (path None), with a name for people and its stored bytes."""

    path: epath.Path | None
    name: str
    num_bytes: int

    def open(self) -> AbstractContextManager[Splitter]: ...


@dataclasses.dataclass(frozen=True)
class FileSource:
    """A file of lines or a table."""

    path: epath.Path
    splitter: Callable[[epath.Path], AbstractContextManager[Splitter]]

    @property
    def name(self) -> str:
        return self.path.name

    @functools.cached_property
    def num_bytes(self) -> int:
        return self.path.stat().length

    def open(self) -> AbstractContextManager[Splitter]:
        return self.splitter(self.path)


def snapshot(sources: Iterable[Source]) -> Snapshot:
    return Snapshot(source.path for source in sources if source.path)


def find_sources(options: CorpusOptions, tables: bool = False) -> list[Source]:
    """Finds the files and data sets of a corpus; `tables` allows csv and tsv, to read rows, not documents."""
    options.check()
    sources: list[Source] = []
    for path in find_files(options.input):
        kind = file_format(path).kind
        if kind in TABLES.values():
            if not tables:
                raise not_a_corpus(path, f".{kind}")
            from tfrecord_builders.corpus.delimited import TableSplitter

            sources.append(FileSource(path, TableSplitter))
        elif kind == "parquet":
            from tfrecord_builders.corpus import parquet

            field = parquet.field_of_rows(path, options.text_field) if tables else options.text_field
            sources.append(parquet.ParquetSource(path, dataclasses.replace(options, text_field=field)))
        else:
            sources.append(FileSource(path, functools.partial(TextSplitter, options=options)))
    if options.tfds_name:
        from tfrecord_builders.corpus.datasets import DatasetSource

        sources.append(DatasetSource(options))
    return sources

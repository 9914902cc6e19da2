"""Sources of a corpus: what its shards are cut from."""

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tfrecord_builders.corpus.files import TABLES, file_format, find_files, not_a_corpus
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.text import TextSource


class Cutter(Protocol):
    """A source that is cut from its begin to its end.

    Attributes:
        at_end: whether nothing is left.
        source_position: bytes of the source, as it is stored, that have been passed.
    """

    at_end: bool
    source_position: int

    def take(self, target: int, slack: int) -> Any:
        """Takes a part (shards.Part) of at least `target` bytes, or what is left.

        Args:
            target: bytes, uncompressed.
            slack: bytes after which the part may end inside of a document, or of what is stored together.
        """


class Source(Protocol):
    """A file or a data set.

    Attributes:
        name: for people.
        num_bytes: of the source, as it is stored.
    """

    name: str
    num_bytes: int

    def open(self) -> AbstractContextManager[Cutter]:
        """Returns what cuts the source."""


def find_sources(options: CorpusOptions, tables: bool = False) -> list[Source]:
    """Finds the files and data sets of a corpus.

    Args:
        tables: whether rows are wanted, of csv and tsv files, too, and not the documents in one column.

    Raises:
        FileNotFoundError: nothing is where the options say.
        UserError: the options are wrong, or a source cannot be read or lacks the text's field.
    """
    options.check()
    sources: list[Source] = []
    for path in find_files(options.input):
        kind = file_format(path).kind
        if kind in TABLES.values():
            if not tables:
                raise not_a_corpus(path, f".{kind}")
            from tfrecord_builders.corpus.delimited import TableSource

            sources.append(TableSource(path))
        elif kind == "parquet":
            from tfrecord_builders.corpus import parquet

            field = parquet.column_to_cut_by(path, options.text_field) if tables else options.text_field
            sources.append(parquet.ParquetSource(path, dataclasses.replace(options, text_field=field)))
        else:
            sources.append(TextSource(path, options))
    if options.tfds_name:
        from tfrecord_builders.corpus.datasets import DatasetSource

        sources.append(DatasetSource(options))
    return sources

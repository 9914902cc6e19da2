"""Corpora of many formats, cut into shards, which builders' jobs tokenize; memory never holds a corpus.

A corpus is files and folders of plain text, jsonl or parquet, plain or compressed, and data sets of
TensorFlow Datasets. Its shards depend only on the corpus and on their size.

Begin with `shards.py`. `sources.py` finds the parts of a corpus; `text.py` reads plain text and jsonl,
`parquet.py` and `datasets.py` one format each, and `delimited.py` tables, as rows instead of documents.
"""

from tfrecord_builders.corpus.files import is_part
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.rows import CorpusRow, is_text
from tfrecord_builders.corpus.shards import (
    CorpusShard,
    Lines,
    Selection,
    plan_shards,
    read_lines,
    read_rows,
    sample_lines,
)
from tfrecord_builders.corpus.sources import Source, find_sources, snapshot

__all__ = [
    "CorpusOptions",
    "CorpusRow",
    "Lines",
    "Selection",
    "CorpusShard",
    "Source",
    "find_sources",
    "is_part",
    "is_text",
    "plan_shards",
    "read_lines",
    "read_rows",
    "sample_lines",
    "snapshot",
]

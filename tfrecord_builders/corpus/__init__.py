"""Corpora of many formats, cut into shards: what a job of a builder tokenizes; memory never holds a corpus.

A corpus is files and folders of plain text, jsonl or parquet, plain or compressed, and data sets of
TensorFlow Datasets. Its shards depend on the corpus and their size alone.

Begin with `shards.py`. `sources.py` finds what a corpus consists of; `text.py` reads plain text and jsonl,
`parquet.py` and `datasets.py` one format each, and so does `delimited.py`, for those who want rows instead of
documents.
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

"""Corpora of many formats, cut into slices: the units that builders tokenize; memory never holds a corpus.

A corpus is files and folders of plain text, jsonl or parquet, plain or compressed, and data sets of
TensorFlow Datasets. Its slices depend on the corpus and the slices' size alone.
"""

from tfrecord_builders.corpus.files import Snapshot, is_part
from tfrecord_builders.corpus.options import CorpusOptions
from tfrecord_builders.corpus.shards import Lines, Selection, Slice, plan_slices, read_lines, sample_lines
from tfrecord_builders.corpus.sources import Source, find_sources

__all__ = [
    "CorpusOptions",
    "Lines",
    "Selection",
    "Slice",
    "Snapshot",
    "Source",
    "find_sources",
    "is_part",
    "plan_slices",
    "read_lines",
    "sample_lines",
]

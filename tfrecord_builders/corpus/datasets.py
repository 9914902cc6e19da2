"""Prepared data sets of TensorFlow Datasets with a document in each example.

Planning reads only a data set's description; TensorFlow is loaded where examples are read.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from tfrecord_builders.common.named_sets import prepared_builder
from tfrecord_builders.corpus.documents import MAX_DOCUMENT_BYTES, PartOfRows
from tfrecord_builders.corpus.options import CorpusOptions
from xlnet_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class DatasetPart(PartOfRows):
    """Consecutive examples in the data set's order; their bytes are estimated in proportion."""

    def texts(self) -> Iterator[str]:
        field = self.options.text_field
        examples = _builder(self.options).as_dataset(
            split=tfds.core.ReadInstruction(
                self.options.tfds_split, from_=self.start, to=self.stop, unit="abs"
            ),
            decoders=tfds.decode.PartialDecoding({field: True}),
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        )
        for number, example in enumerate(tfds.as_numpy(examples), self.start + 1):
            location = f"{self.options.tfds_name}, example {number}, {field!r}"
            if len(text := example[field]) > MAX_DOCUMENT_BYTES:
                raise UserError(
                    f"{location} has {len(text):,} bytes, expected at most {MAX_DOCUMENT_BYTES:,}"
                )
            try:
                yield text.decode()
            except UnicodeDecodeError as error:
                found = f"byte 0x{text[error.start]:02x} at byte {error.start + 1} of its text"
                raise UserError(f"{location} is not UTF-8 ({found}): prepare the data set again") from None


class DatasetSource:
    """A split of a data set, which must be prepared and have the text field."""

    path = None

    def __init__(self, options: CorpusOptions):
        info = _builder(options).info
        if options.tfds_split not in info.splits:
            raise UserError(
                f"{info.full_name} has the splits {', '.join(info.splits)}, expected {options.tfds_split!r}: "
                "name one by --tfds_split"
            )
        texts = [name for name, kind in info.features.items() if isinstance(kind, tfds.features.Text)]
        if options.text_field not in texts:
            raise UserError(
                f"{info.full_name} has the texts {', '.join(texts) or '(none)'}, expected "
                f"{options.text_field!r}: name one by --text_field"
            )
        self.name = f"{info.full_name}:{options.tfds_split}"
        self.num_bytes = int(info.splits[options.tfds_split].num_bytes)
        self.num_examples = int(info.splits[options.tfds_split].num_examples)
        self.options = options

    def open(self) -> contextlib.AbstractContextManager["_DatasetSplitter"]:
        return contextlib.nullcontext(_DatasetSplitter(self))


class _DatasetSplitter:
    """Splits a data set by its mean example's size, without reading it."""

    def __init__(self, source: DatasetSource):
        self._source = source
        self._example = 0

    @property
    def at_end(self) -> bool:
        return self._example >= self._source.num_examples

    @property
    def source_position(self) -> int:
        return self._source.num_bytes * self._example // max(self._source.num_examples, 1)

    def read_part(self, target: int, slack: int) -> DatasetPart:
        del slack
        start, position = self._example, self.source_position
        count = -(-target * self._source.num_examples // max(self._source.num_bytes, 1))
        self._example = min(start + max(count, 1), self._source.num_examples)
        return DatasetPart(start, self._example, self.source_position - position, self._source.options)


@functools.lru_cache(maxsize=1)
def _builder(options: CorpusOptions) -> Any:
    """Opens a prepared data set once per process; nothing is downloaded."""
    return prepared_builder(options.tfds_name, options.tfds_data_dir, "--tfds_name and --tfds_data_dir")

"""The builders' made-up language serves the benchmarks' tests, too."""

from tests.tfrecord_builders.conftest import corpus_file, tokenizer_file

__all__ = ["corpus_file", "tokenizer_file"]

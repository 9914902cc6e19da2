"""The builders' made-up language, for the benchmarks, too, and a stand-in for a Python with torch."""

import sys

import pytest

from tests.tfrecord_builders.conftest import corpus_file, tokenizer_file

__all__ = ["corpus_file", "tokenizer_file"]


@pytest.fixture
def peer_python(request, tmp_path):
    """A program that answers as the test file's PEER says."""
    path = tmp_path / "python"
    path.write_text(request.module.PEER.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)

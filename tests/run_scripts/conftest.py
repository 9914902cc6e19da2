"""The builders' made-up language serves the scripts' tests, too, and so does a run of the contracts."""

import tarfile

import pytest

from tests.contracts import make
from tests.tfrecord_builders.conftest import corpus_file, tokenizer_file

__all__ = ["corpus_file", "run", "tokenizer_file"]


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A classifier of the labels bad and good."""
    folder = tmp_path_factory.mktemp("artefacts")
    with tarfile.open(make.ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "runs" / "classification"

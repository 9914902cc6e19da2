"""The builders' made-up language, for the benchmarks, too, and a stand-in for a Python with torch."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.tfrecord_builders.conftest import corpus_file, tokenizer_file

__all__ = ["corpus_file", "tokenizer_file"]


def run_script(name, *arguments, **environment):
    """Runs benchmarks.NAME in a process; returns it, ended."""
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def peer_python(request, tmp_path):
    """A program that answers as the test file's PEER says."""
    path = tmp_path / "python"
    path.write_text(request.module.PEER.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)

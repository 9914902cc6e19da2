"""Programs in processes of their own, which set up devices or end otherwise than tests may."""

import os
import subprocess
import sys

from tests.conftest import REPOSITORY


def run_alone(*arguments, **environment: str) -> subprocess.CompletedProcess:
    """Runs Python with arguments, in the checkout and without a GPU; returns what it said."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=REPOSITORY,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1", **environment},
        capture_output=True,
        text=True,
        timeout=7200,
    )

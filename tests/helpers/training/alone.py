"""Programs in processes of their own, which set up devices or end otherwise than tests may."""

import contextlib
import json
import os
import socket
import subprocess
import sys

from tests.conftest import REPOSITORY


def run_alone(*arguments, **environment: str) -> subprocess.CompletedProcess:
    """Runs Python with arguments, in the checkout and without a GPU; returns what it said."""
    process = start_alone(*arguments, stdout=subprocess.PIPE, **environment)
    try:
        said = process.communicate(timeout=7200)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, *said)


def start_alone(*arguments, stdout=subprocess.DEVNULL, **environment: str) -> subprocess.Popen:
    """Starts what `run_alone` runs."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=REPOSITORY,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1", **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def cluster_of(workers: int) -> list[str]:
    """Returns the TF_CONFIG of each of several workers on this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(workers)]
        for one in sockets:
            one.bind(("localhost", 0))
        cluster = {"worker": [f"localhost:{one.getsockname()[1]}" for one in sockets]}
    tasks = ({"type": "worker", "index": index} for index in range(workers))
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]

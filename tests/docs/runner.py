"""Runs the blocks of a page in a temporary folder."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from tests.docs.pages import Block, Page, matches, plain

TIMEOUT = 600  # seconds that a block may take


class Result(NamedTuple):
    """What a block gave.

    Args:
        stdout: its standard output; for a block that is to fail, both outputs.
        output: both outputs, as a terminal mixes them.
        worked: whether it ended without an error.
    """

    stdout: str
    output: str
    worked: bool


class PageFailure(AssertionError):
    """A block did not work, or gave another output than its page shows."""


class Runner:
    """Runs blocks in a folder, in the order they are given; bash in a shell each, python in one namespace."""

    def __init__(self, folder: pathlib.Path, programs: pathlib.Path):
        self._folder = folder
        self._environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "MPLBACKEND": "Agg",
            "COLUMNS": "100",
            "PYTHONWARNINGS": "ignore",
        }
        for name in ("TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL", "XLA_FLAGS", "PYTHONPATH"):
            self._environment.pop(name, None)  # as a user has it
        self._started: list[subprocess.Popen] = []
        self._kernel = None

    def run(self, block: Block, name: str, timeout: float = TIMEOUT) -> Result:
        """Runs a block.

        Args:
            block: it.
            name: what tracebacks call it.
            timeout: seconds until it is ended.
        """
        with tempfile.TemporaryDirectory() as scratch:
            both = os.path.join(scratch, "output")
            # Of a block that is to fail, the message counts as well.
            stdout = both if "fails" in block.markers else os.path.join(scratch, "stdout")
            run = self._bash if block.language == "bash" else self._python
            worked = run(block.command, name, stdout, both, timeout)
            texts = [pathlib.Path(path).read_text(errors="replace") for path in (stdout, both)]
        return Result(texts[0], "".join(dict.fromkeys(texts)), worked)

    def _bash(self, code: str, name: str, stdout: str, stderr: str, timeout: float) -> bool:
        with open(stdout, "ab") as out, open(stderr, "ab") as err:
            process = self._start(["bash", "-euo", "pipefail", "-c", code, name], stdout=out, stderr=err)
        try:
            return process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            _append(stderr, f"\n(ended after {timeout} seconds)\n")
            return False

    def _python(self, code: str, name: str, stdout: str, stderr: str, timeout: float) -> bool:
        if self._kernel is None:
            pipe = subprocess.PIPE
            command = "python -m tests.docs.kernel"
            self._kernel = self._start(["bash", "-c", f"exec {command}"], stdin=pipe, stdout=pipe)
        kernel = self._kernel
        kernel.stdin.write(json.dumps([code, name, stdout, stderr]).encode() + b"\n")
        kernel.stdin.flush()
        for path in (stdout, stderr):
            pathlib.Path(path).touch()
        if not select.select([kernel.stdout], [], [], timeout)[0]:
            _append(stderr, f"\n(ended after {timeout} seconds)\n")
            return False
        return json.loads(kernel.stdout.readline() or "false")

    def _start(self, command: list[str], stdin=subprocess.DEVNULL, **files) -> subprocess.Popen:
        process = subprocess.Popen(
            command, cwd=self._folder, env=self._environment, preexec_fn=os.setpgrp, stdin=stdin, **files
        )
        self._started.append(process)
        return process

    def close(self):
        """Ends everything that the blocks have left running."""
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for file in (process.stdin, process.stdout):
                if file is not None:
                    file.close()


def _append(path: str, text: str):
    with open(path, "a") as file:
        file.write(text)


def run_page(page: Page, folder: pathlib.Path, programs: pathlib.Path) -> Iterator[tuple[Block, Result]]:
    """Runs the blocks of a page; yields each with what it gave.

    Args:
        page: it.
        folder: where the page's toy files are; the blocks run there.
        programs: see `tests.docs.server.start`.
    """
    with contextlib.closing(Runner(folder, programs)) as runner:
        for block in page.blocks:
            if block.runs:
                yield block, runner.run(block, f"{page.path.name}:{block.line}")


def check(page: Page, block: Block, result: Result):
    """Raises PageFailure if a block did not do what its page says."""
    place = f"{page.path.name}:{block.line}"
    if result.worked == ("fails" in block.markers):
        verb = "fails" if "fails" not in block.markers else "works, and should fail"
        raise PageFailure(f"{place} {verb}:\n{block.command}\n{plain(result.output)[-6000:]}")
    if block.output is not None and not matches(block.output, result.stdout):
        raise PageFailure(
            f"{place}: the output differs.\n{block.command}\n--- shown\n{plain(block.output.text)}\n"
            f"--- given\n{plain(result.stdout)[-6000:]}"
        )

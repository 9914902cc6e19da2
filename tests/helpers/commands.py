"""Runs commands as `python -m` does, without a new interpreter for each."""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import unittest.mock
import warnings
from typing import NamedTuple

from absl import flags

from run_scripts.__main__ import commands
from tests.helpers.command_flags import fresh_flags
from xlnet_tf import errors

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Reads a command a line, and runs it in a fork, which has loaded already what most commands load.
_FORKS = """
import atexit, json, os, pathlib, runpy, sys
import numpy, sentencepiece, yaml
from absl import flags
from etils import epath
from run_scripts.common import answers, experiment, uploads
from tfrecord_builders.common import example_builder, tables
from xlnet_tf import errors, files, task_registry
from xlnet_tf.hub import checksums

def report():
    defined = flags.FLAGS.flags_by_module_dict()
    own = [flag.name for module in defined if not module.startswith("absl.") for flag in defined[module]]
    heavy = sorted({"tensorflow", "tf_keras", "official", "torch", "jax"} & set(sys.modules))
    pathlib.Path(folder, "report").write_text(json.dumps([own, heavy]))

for line in iter(sys.stdin.readline, ""):
    folder, *argv = json.loads(line)
    if not (child := os.fork()):
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), number)
        atexit.register(report)
        sys.argv = argv
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ended(NamedTuple):
    """A command that has ended: what subprocess tells of it, the names of the flags that it has
    defined, and which packages it has loaded that take seconds to.
    """

    returncode: int
    stdout: str
    stderr: str
    flags: list[str]
    heavy: list[str]


def run_in_fork(module: str, *arguments: str) -> Ended:
    """Runs `python -m MODULE ARGUMENTS` in a process without TensorFlow or network, in the checkout."""
    with tempfile.TemporaryDirectory() as name:
        server, folder = _server(), pathlib.Path(name)
        server.stdin.write(json.dumps([name, module, *arguments]) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        texts = [(folder / name).read_text() for name in ("stdout", "stderr")]
        return Ended(status, *texts, *json.loads((folder / "report").read_text()))


@functools.cache
def flags_of_help(command: str) -> frozenset[str]:
    """Returns the flags that the --help of a command lists, `xlnet-tf COMMAND --help`."""
    ended = run_in_fork(commands()[command], "--help=all")
    assert ended.returncode == 0, ended.stderr
    listed = re.findall(r"^  --(\[no\])?(\w+)", ended.stdout, re.M)
    return frozenset(name for _, name in listed) | {f"no{name}" for negated, name in listed if negated}


@functools.cache
def _server() -> subprocess.Popen:
    server = subprocess.Popen(
        [sys.executable, "-c", _FORKS],
        cwd=_REPOSITORY,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    @atexit.register
    def end():
        with contextlib.suppress(OSError):
            server.stdin.close()
        server.wait()

    return server


def run_command(module: str, *arguments: str):
    """Runs the command `python -m MODULE ARGUMENTS` in this process; its errors are raised."""

    def run(main, **_):
        main(flags.FLAGS([module, *arguments]))

    with fresh_flags(), unittest.mock.patch.object(errors, "run", run), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module may have been imported before
        try:
            with unittest.mock.patch.object(sys, "argv", [module, *arguments]):
                runpy.run_module(module, run_name="__main__", alter_sys=True)
        finally:
            if tensorflow := sys.modules.get("tensorflow"):  # a command's process would end here
                tensorflow.config.run_functions_eagerly(False)

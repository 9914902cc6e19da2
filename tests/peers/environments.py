"""Environments with other packages, made by pip in a temporary folder; code runs in them as processes."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
_PROGRAMS = pathlib.Path(__file__).parent / "programs"


class Environment:
    """A Python with some packages; one that is in its folder already is taken as it is.

    Args:
        packages: what pip installs; a list after another is installed over it, whatever it asks for.
        ours: whether code can import this project.
    """

    def __init__(self, folder: pathlib.Path, *packages: Sequence[str], ours: bool = False):
        self._folder, self._python, self._ours = folder, str(folder / "bin" / "python"), ours
        if (folder / "made").exists():
            return
        venv.create(folder, with_pip=True, clear=True)
        for names in packages:
            subprocess.run([self._python, "-m", "pip", "install", "-q", *names], check=True)
        (folder / "made").touch()

    def version(self, package: str) -> str:
        return self.run(f"import importlib.metadata as m\nanswer = m.version({package!r})")

    def call(self, program: str, function: str, **given: Any) -> Any:
        """Calls a function of programs/ with JSON values and returns its result."""
        path = str(_PROGRAMS / f"{program}.py")
        return self.run(f"import runpy\nanswer = runpy.run_path({path!r})[{function!r}](**given)", given)

    def run(self, code: str, given: Any = None) -> Any:
        """Runs code that reads `given` and sets `answer`, both JSON values."""
        program = f"import json, sys\ngiven = json.load(open(sys.argv[1]))\n{code}\n"
        program += "json.dump(answer, open(sys.argv[2], 'w'))\n"
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/given.json", f"{folder}/answer.json"]
            pathlib.Path(paths[0]).write_text(json.dumps(given))
            of_us = ("PYTHONPATH", "TF_USE_LEGACY_KERAS")  # KerasHub's import fails with the second one
            variables = {name: value for name, value in os.environ.items() if name not in of_us}
            variables |= {"HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
            if self._ours:
                variables["PYTHONPATH"] = str(REPOSITORY)
            command = [self._python, "-c", program, *paths]
            ran = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=folder)
            if ran.returncode:
                (self._folder / "error.txt").write_text(ran.stderr)
                raise RuntimeError(_last_error(ran.stderr))
            return json.loads(pathlib.Path(paths[1]).read_text())


def _last_error(text: str) -> str:
    """Returns the line of a traceback that names the error, which may have more lines."""
    named = [line for line in text.splitlines() if re.match(r"[\w.]+(Error|Exception|Interrupt): ", line)]
    return named[-1] if named else text.strip()[-200:] or "no answer"


@contextlib.contextmanager
def environment(*packages: str) -> Iterator[Environment]:
    """Makes an environment and removes it afterwards."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        yield Environment(pathlib.Path(folder), packages)


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

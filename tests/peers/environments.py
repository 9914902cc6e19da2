"""Environments with other packages, made by pip in a temporary folder; code runs in them as processes."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from typing import Any


class Environment:
    """A Python with some packages and nothing of ours."""

    def __init__(self, folder: pathlib.Path, packages: Sequence[str]):
        venv.create(folder, with_pip=True)
        self._python = str(folder / "bin" / "python")
        subprocess.run([self._python, "-m", "pip", "install", "-q", *packages], check=True)

    def version(self, package: str) -> str:
        return self.run(f"import importlib.metadata as m\nanswer = m.version({package!r})")

    def run(self, code: str, given: Any = None) -> Any:
        """Runs code that reads `given` and sets `answer`, both JSON values."""
        program = f"import json, sys\ngiven = json.load(open(sys.argv[1]))\n{code}\n"
        program += "json.dump(answer, open(sys.argv[2], 'w'))\n"
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/given.json", f"{folder}/answer.json"]
            pathlib.Path(paths[0]).write_text(json.dumps(given))
            variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            variables |= {"HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
            ran = subprocess.run(
                [self._python, "-c", program, *paths], env=variables, capture_output=True, text=True
            )
            if ran.returncode:
                raise RuntimeError(ran.stderr.strip().splitlines()[-1] if ran.stderr else "no answer")
            return json.loads(pathlib.Path(paths[1]).read_text())


@contextlib.contextmanager
def environment(*packages: str) -> Iterator[Environment]:
    """Makes an environment and removes it afterwards."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        yield Environment(pathlib.Path(folder), packages)


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

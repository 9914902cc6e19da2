"""Runs commands in processes, and their child processes, that cannot import TensorFlow."""

import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_SITE = """
import importlib.machinery
import sys

NAMES = {"tensorflow", "tf_keras", "keras", "tensorflow_text", "tensorflow_serving", "official"}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in NAMES else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise ModuleNotFoundError(f"{module.__name__} must not be imported", name=module.__name__)

sys.meta_path.insert(0, Blocker())
"""


def environment(folder: pathlib.Path) -> dict[str, str]:
    """Returns the variables of such a process; the folder gets the file that Python runs first."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(_SITE)
    return {**os.environ, "PYTHONPATH": f"{folder / 'site'}:{REPOSITORY}"}


def run(folder: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of the project to its end, such as run(folder, "predict", "--input=text=a")."""
    command = [sys.executable, "-m", "run_scripts", *words]
    return subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=300)


def run_code(folder: pathlib.Path, code: str, given: str) -> str:
    """Runs Python code, which reads what is given; returns what it prints."""
    command, files = [sys.executable, "-c", code], {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(command, env=environment(folder), input=given, **files)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""What users install: the pins, the Python versions, and the wheel, which works outside of the checkout."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
from importlib import resources

import pytest
from packaging.requirements import Requirement

import xlnet_tf
from tests.conftest import REPOSITORY

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
# Names that the oldest Python lacks; the linter does not know them.
TOO_NEW = {
    "typing": {"Self", "assert_type", "assert_never", "reveal_type", "Never", "LiteralString", "NotRequired",
               "Required", "Unpack", "override", "TypeVarTuple"},
    "datetime": {"UTC"},
    "enum": {"StrEnum", "verify", "ReprEnum"},
    "contextlib": {"chdir"},
    "itertools": {"batched"},
    "hashlib": {"file_digest"},
    "asyncio": {"TaskGroup", "Runner", "timeout"},
}  # fmt: skip


def test_the_version_is_that_of_the_package():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "xlnet_tf.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", xlnet_tf.__version__)


def test_type_checkers_find_the_marker_of_typed_packages():
    assert (resources.files("xlnet_tf") / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["xlnet_tf"]


def test_pythons_are_named_alike_everywhere():
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]},<3.{int(PYTHONS[-1][2:]) + 1}"
    assert PROJECT["tool"]["ruff"]["target-version"] == "py310"
    assert PROJECT["tool"]["mypy"]["python_version"] == PYTHONS[0]
    makefile = (REPOSITORY / "Makefile").read_text()
    assert "(3, 10) <= sys.version_info < (3, 14)" in makefile and "--python-version 3.10" in makefile


def test_no_code_needs_a_newer_python_than_the_oldest():
    some = re.compile(r"except\*|" + "|".join(rf"\b{name}\b" for names in TOO_NEW.values() for name in names))
    found = []
    for folder in ("xlnet_tf", "tfrecord_builders", "run_scripts", "tests"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            if path != pathlib.Path(__file__) and some.search(path.read_text()):
                found += [f"{path.name}: {name}" for name in too_new(ast.parse(path.read_text()))]
    assert not found
    assert too_new(ast.parse("from typing import Any, Self; datetime.UTC")) == ["Self", "UTC"]


def too_new(tree):
    """Returns the names that the oldest Python lacks."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if alias.name in TOO_NEW.get(node.module, ())]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [node.attr] * (node.attr in TOO_NEW.get(node.value.id, ()))
        elif type(node).__name__ == "TryStar":
            found.append("except*")
    return found


def requirements(*extras):
    """Returns what the project and some of its extras ask for."""
    lines = []
    for extra in ("", *(f"-{extra}" for extra in extras)):
        lines += (REPOSITORY / f"requirements{extra}.txt").read_text().splitlines()
    return [Requirement(line.partition("  #")[0]) for line in lines if line and not line.startswith("#")]


def pins():
    """Returns the requirements of requirements.lock, each with its number of hashes."""
    text = (REPOSITORY / "requirements.lock").read_text()
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE))
    return [(Requirement(entry.partition("\\")[0]), entry.count("--hash=sha256:")) for entry in entries]


def environment(python, machine):
    return {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "extra": "",
    }


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_pins_each_package_once_for_every_python(python, machine):
    here = environment(python, machine)
    locked = [pin for pin, _ in pins() if not pin.marker or pin.marker.evaluate(here)]
    versions = {pin.name.replace("_", "-").lower(): str(pin.specifier)[2:] for pin in locked}
    assert len(versions) == len(locked)
    wanted = requirements(*locked_extras())
    for wish in wanted:
        if not wish.marker or wish.marker.evaluate(here):
            assert wish.specifier.contains(versions[wish.name.replace("_", "-").lower()]), wish


def locked_extras():
    """Returns the extras that the Makefile puts into the lock."""
    line = re.search(r"^LOCKED := (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)[1]
    return re.findall(r"requirements-([\w-]+)\.txt", line)


def test_the_lock_has_checksums_and_no_index():
    assert all(hashes for _, hashes in pins())
    assert "://" not in (REPOSITORY / "requirements.lock").read_text()


def test_every_extra_is_one_of_the_package():
    files = {path.stem.removeprefix("requirements-") for path in REPOSITORY.glob("requirements-*.txt")}
    dynamic = PROJECT["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    assert set(dynamic) == files - {"demo"}  # the demo's text, which pip only unpacks
    assert {name: f"requirements-{name}.txt" for name in dynamic} == {
        name: value["file"][0] for name, value in dynamic.items()
    }


def chosen_python(folder, *, fine, arguments=()):
    """Returns which interpreter `make setup` takes where only some names work."""
    for name in ("python3.10", "python3.11", "python3.12", "python3.13", "python3"):
        script = folder / name
        script.write_text(f"#!/bin/sh\nexit {0 if name in fine else 1}\n")
        script.chmod(0o755)
    done = subprocess.run(
        ["make", "--dry-run", "setup", f"VENV={folder}/venv", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    return re.search(r"\|\| (\S*) -m venv", done.stdout)[1]


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_make_takes_the_first_suitable_interpreter(tmp_path):
    assert chosen_python(tmp_path, fine={"python3.10", "python3.11", "python3.13"}) == "python3.11"
    assert chosen_python(tmp_path, fine={"python3.10", "python3.13"}) == "python3.13"
    assert chosen_python(tmp_path, fine={"python3.10"}) == "python3.10"
    assert chosen_python(tmp_path, fine={"python3"}) == "python3"
    assert chosen_python(tmp_path, fine={"python3.11"}, arguments=["PYTHON=/a/python"]) == "/a/python"

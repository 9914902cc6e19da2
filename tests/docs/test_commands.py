"""Commands in bash blocks of README, BUILD and docs exist with their flags, even where blocks do not run."""

import functools
import pathlib
import re

import pytest

from run_scripts.__main__ import commands
from tests.docs import pages
from tests.helpers.commands import flags_of_help

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "BUILD.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@functools.cache
def blocks(path: pathlib.Path) -> list[str]:
    """Returns the bash blocks of a page, a command on one line each."""
    found = [block.text for block in pages.read(path).blocks if block.language == "bash"]
    return [text.replace("\\\n", " ") for text in found]


def invocations(text: str):
    """Yields each command of a block and the names of its flags."""
    modules = {module: name for name, module in commands().items()}
    for line in text.splitlines():
        for match in re.finditer(r"(?:xlnet-tf |python -m (run_scripts|tfrecord_builders)\.)(.*)", line):
            package, words = match[1], re.sub(r"'[^']*'|\"[^\"]*\"", "''", match[2]).split()
            if package:
                name = modules.get(f"{package}.{words[0]}", words[0])
            else:
                name = " ".join(words[: 1 + (words[0] == "build")])
            arguments = re.split(r"[|&;)]", " ".join(words))[0]
            yield name, re.findall(r"(?:^| )--(\w+)", arguments)


@pytest.mark.docs
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_commands_and_flags_exist(path):
    for text in blocks(path):
        for name, flags in invocations(text):
            if name in ("--help", "--version", "completion"):
                continue
            assert name in commands(), f"{path.name}: {name}"
            unknown = set(flags) - flags_of_help(name) - {"help", "helpfull"}
            assert not unknown, f"{path.name}: {name} has no --{', --'.join(sorted(unknown))}"

"""docs/migrate/: every command, flag, class, argument and input that the right columns name exists."""

import importlib
import inspect
import pathlib
import re

import pytest

from run_scripts.__main__ import commands
from tests.helpers.commands import flags_of_help
from xlnet_tf.cli import command_line
from xlnet_tf.models.encoder import XLNetEncoder

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("original", "hugging-face", "model-garden", "keras-hub")
COMMAND = re.compile(r"xlnet-tf ((?:build )?[a-z-]+)|\b(build [a-z]+)")
NAME = re.compile(r"(xlnet_tf(?:\.\w+)+)(?:\((\w+)=\))?")


def rows(page: str):
    """Yields the header and the cells of each row that has two."""
    header = None
    for line in (REPOSITORY / "docs" / "migrate" / f"{page}.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            header = None
        elif header is None:
            header = cells
        elif not set(line) <= set("|-"):
            yield header, cells


def check_name(path: str, argument: str):
    """Fails unless a dotted name exists and takes the argument."""
    import xlnet_tf

    found = xlnet_tf
    for part in path.split(".")[1:]:
        found = getattr(found, part, None) or importlib.import_module(path)
    if argument:
        bases = found.__mro__ if inspect.isclass(found) else [found]
        taken = {name for base in bases for name in _parameters(base)}
        assert argument in taken, f"{path} takes no {argument}"


def _parameters(function) -> set[str]:
    try:
        return set(inspect.signature(function.__init__ if inspect.isclass(function) else function).parameters)
    except (TypeError, ValueError):
        return set()


@pytest.mark.parametrize("page", PAGES)
def test_every_new_name_exists(page):
    checked = 0
    for header, cells in rows(page):
        assert len(cells) == 2, cells
        codes = re.findall(r"`([^`]+)`", cells[1])
        of_header = COMMAND.search(header[1])
        for code in codes:
            for path, argument in NAME.findall(code):
                check_name(path, argument)
                checked += 1
            named = [one or other for one, other in COMMAND.findall(code)]
            assert set(named) <= set(commands()), code
            command = named[0] if named else of_header and (of_header[1] or of_header[2])
            flags = re.findall(r"--(\w+)", code)
            if flags and command:
                assert set(flags) <= flags_of_help(command), f"{command}: {code}"
            checked += len(flags) + len(named)
            if header[1] == "`xlnet_tf.XLNetEncoder`" and re.fullmatch(r"[a-z_]+", code):
                assert re.search(rf"^ +{code}[,:]|, {code}[,:]", XLNetEncoder.__doc__, re.M), code
                checked += 1
    assert checked > (15 if page == "keras-hub" else 20)


@pytest.mark.parametrize("page", ("original", "model-garden"))
def test_a_command_suggests_its_own_name_for_an_old_flag(page):
    checked = 0
    for header, (old, new) in rows(page):
        found, command = re.fullmatch(r"`--(\w+)`( \(.*\))?", old), COMMAND.search(header[1])
        command = command or COMMAND.search(new)
        ours = re.findall(r"--(\w+)", new)
        if not (found and ours and command) or found[1] in flags_of_help(command[1] or command[2]):
            continue
        known = {name: f"--{name}" for name in flags_of_help(command[1] or command[2])}
        tip = command_line.did_you_mean(found[1], known)
        assert any(f"--{name}" in tip for name in ours), (old, new, tip)
        checked += 1
    assert checked > 5

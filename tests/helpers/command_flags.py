"""The flags of a command: parsed as its main would find them, or listed as its --help does."""

import contextlib
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

from absl import flags

from run_scripts.__main__ import commands

_GLOBAL = flags.FLAGS  # whatever a test puts in its place


@contextlib.contextmanager
def fresh_flags() -> Iterator[flags.FlagValues]:
    """Takes all but absl's own out of the global flags for the block."""
    kept, modules = dict(vars(_GLOBAL)), _GLOBAL.flags_by_module_dict()
    _GLOBAL.__init__()
    for flag in [flag for name, defined in modules.items() if name.startswith("absl.") for flag in defined]:
        _GLOBAL[flag.name] = flag
    try:
        yield _GLOBAL
    finally:
        vars(_GLOBAL).clear()
        vars(_GLOBAL).update(kept)


def parsed(define: Callable[[], object], *arguments: object) -> flags.FlagValues:
    """Returns the flags that `define` defines, with these arguments."""
    with fresh_flags() as values:
        define()
        values(["command", *map(str, arguments)])
        own = flags.FlagValues()
        vars(own).update(vars(values))
        return own


@functools.cache
def flags_of_help(command: str) -> frozenset[str]:
    """Returns the flags that the --help of a command lists, `xlnet-tf COMMAND --help`."""
    run = [sys.executable, "-m", commands()[command], "--help"]
    text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  --(\[no\])?(\w+)", text, re.M)
    return frozenset(name for _, name in listed) | {f"no{name}" for negated, name in listed if negated}

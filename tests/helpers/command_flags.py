"""The flags of a command, parsed as its main would find them."""

import contextlib
from collections.abc import Callable, Iterator

from absl import flags

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

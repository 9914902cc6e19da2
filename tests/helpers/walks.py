"""Which functions of the project a piece of work enters, once everything is imported."""

import collections
import contextlib
import pathlib
import sys
import threading
import types
from collections.abc import Callable, Iterator

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("xlnet_tf", "tfrecord_builders", "run_scripts")


def entered(walk: Callable[[str], object]) -> dict[str, set[str]]:
    """Returns the functions that a piece of work enters: file -> names.

    It is done twice, for modules and caches, of which the second time is traced, in all threads.

    Args:
        walk: called with "first", then with "second", so that it can write to another folder each time.
    """
    walk("first")
    with recording() as found:
        walk("second")
    return found


@contextlib.contextmanager
def recording() -> Iterator[dict[str, set[str]]]:
    """Notes the functions that are entered while the block runs, also in threads that it starts."""
    roots = tuple(f"{REPOSITORY / package}/" for package in PACKAGES)
    found: dict[str, set[str]] = collections.defaultdict(set)

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(roots) and not code.co_name.startswith("<"):
            found[code.co_filename.removeprefix(f"{REPOSITORY}/")].add(qualified_name(code))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def counts(found: dict[str, set[str]]) -> tuple[int, int]:
    """Returns the number of functions and of files."""
    return sum(map(len, found.values())), len(found)


def listed(found: dict[str, set[str]]) -> str:
    """Returns the functions by file, to see which of them a walk could do without."""
    return "\n".join(f"{file}: {', '.join(sorted(names))}" for file, names in sorted(found.items()))


def qualified_name(code: types.CodeType) -> str:
    """Returns what a function is called; Python 3.10 knows no class of it, so there it has its line."""
    return getattr(code, "co_qualname", f"{code.co_name}:{code.co_firstlineno}")

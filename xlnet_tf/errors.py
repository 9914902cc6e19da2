"""Errors meant for the person at the keyboard: what was found, what was expected, what to do."""

import sys
from collections.abc import Callable, Sequence

from absl import app


class UserError(ValueError):
    """Wrong input, flag or file. The message alone tells the user how to go on."""


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs an absl main; expected errors become one clean message on stderr and exit code 1.

    Args:
        main: the script's main, called with the arguments that are left after the flags.
    """

    def guarded(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])} (did you forget '--'?)")
        try:
            main(argv)
        except (UserError, OSError) as error:
            print(f"ERROR: {error}", file=sys.stderr)
            sys.exit(1)

    app.run(guarded)

"""Errors meant for the person at the keyboard: what was found, what was expected, what to do."""

import sys
from collections.abc import Callable, Sequence

from absl import app


class UserError(ValueError):
    """Wrong input, flag or file. The message alone tells the user how to go on."""


class Interrupted(Exception):
    """A run was ended from outside, and the same command goes on with it."""

    EXIT_STATUS = 75  # EX_TEMPFAIL of sysexits.h: "the user is invited to retry"


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs an absl main; expected errors become one clean message on stderr and an exit status.

    The status is 1, and 75 for a run that was interrupted and that the same command goes on with.

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
        except Interrupted as reason:
            print(f"INTERRUPTED: {reason}", file=sys.stderr)
            sys.exit(Interrupted.EXIT_STATUS)

    app.run(guarded)

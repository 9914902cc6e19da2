"""Errors meant for the person at the keyboard: what was found, what was expected, what to do."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence

from absl import app


class UserError(ValueError):
    """Wrong input, flag or file. The message alone tells the user how to go on."""


class Interrupted(Exception):
    """A run was ended from outside, and the same command goes on with it."""

    EXIT_STATUS = 75  # EX_TEMPFAIL of sysexits.h: "the user is invited to retry"


@contextlib.contextmanager
def of_file_systems() -> Iterator[None]:
    """Turns what TensorFlow's file systems (gs:// and others) raise, which is no OSError, into a UserError.

    Errors of the same types that TensorFlow's operations raise are none of files, and stay what they are.
    """
    try:
        yield
    except Exception as error:
        calls = traceback.extract_tb(error.__traceback__)
        tensorflow = sys.modules.get("tensorflow")  # without it, there are no such errors
        if (
            tensorflow is None
            or not isinstance(error, tensorflow.errors.OpError)
            or not any("tensorflow/python/lib/io/" in call.filename for call in calls)
        ):
            raise
        raise UserError(
            f"{' '.join(error.message.split())} ({type(error).__name__} of the file system). Check the path "
            "and your rights to it; if the file system did not answer, start again with the same flags"
        ) from error


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
            with of_file_systems():
                main(argv)
        except (UserError, OSError) as error:
            print(f"ERROR: {error}", file=sys.stderr)
            sys.exit(1)
        except Interrupted as reason:
            print(f"INTERRUPTED: {reason}", file=sys.stderr)
            sys.exit(Interrupted.EXIT_STATUS)

    app.run(guarded)

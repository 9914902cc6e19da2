"""Errors meant for the person at the keyboard: what was found, what was expected, what to do."""

import contextlib
import ctypes
import errno
import functools
import gc
import io
import json
import logging
import os
import re
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any

from absl import app
from absl import logging as absl_logging

from xlnet_tf.cli import command_line
from xlnet_tf.cli.signals import EXIT_STATUS, Signals

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class UserError(ValueError):
    """Wrong input, flag or file. The message alone says what to do."""


@contextlib.contextmanager
def prefixed(name: str) -> Iterator[None]:
    """Puts a name, unless it is empty, before the messages of errors that are raised within."""
    try:
        yield
    except (UserError, FileNotFoundError) as error:
        raise type(error)(f"{name}: {error}") if name else error from error


def install_command(extra: str) -> str:
    """Returns the command that installs an extra: by name if the project is installed, else by its folder."""
    try:
        project = metadata.metadata("xlnet-tf")["Name"]
    except metadata.PackageNotFoundError:
        project = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return f"pip install '{project}[{extra}]'"


def short_repr(value: object, write: Callable[[Any], str] = repr) -> str:
    """Returns a value for a message, shortened; `write` converts it to text."""
    text = write(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"


def short_json(value: object) -> str:
    """Returns a request's value for a message: as JSON, shortened."""
    return short_repr(value, functools.partial(json.dumps, ensure_ascii=False))


def reason(error: Exception) -> str:
    """Returns an error's cause in one line, without errno or TensorFlow's graph."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    around = (" ", "Detected", "Graph", "<stack traces")
    lines = (line.strip() for line in _message(error).splitlines() if not line.startswith(around))
    return next(filter(None, lines), type(error).__name__)


def _message(error: Exception) -> str:
    """Returns an error's message without the names of TensorFlow's node and operation."""
    return re.sub(r"\{\{.*?\}\} | \[Op:.*", "", getattr(error, "message", None) or str(error))


class Interrupted(Exception):
    """A run was ended from outside, and the same command resumes it."""

    EXIT_STATUS = EXIT_STATUS[signal.SIGTERM]


class Cancelled(Interrupted):
    """A run was ended by Ctrl-C, and the same command resumes it."""

    EXIT_STATUS = EXIT_STATUS[signal.SIGINT]


_STDOUT, _STDERR = 1, 2
_LOOK_UP_OF_ETILS = "make_path"  # its function that looks up schemes
_USES_OF_FILES = ("tensorflow/python/lib/io/", "gen_summary_ops.py")
# absl::SetMinLogLevel as TensorFlow 2.20 has it: no variable and no function of Python sets it.
_SET_MIN_LOG_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"
_UNREAD_OUTPUT = 128 + signal.SIGPIPE  # as a shell reports a program that a broken pipe ended


@contextlib.contextmanager
def tf_errors_as_user_errors() -> Iterator[None]:
    """Turns errors of TensorFlow and etils about files, which are not OSErrors, into UserErrors."""
    try:
        yield
    except Exception as error:
        calls = traceback.extract_tb(error.__traceback__)
        if isinstance(error, KeyError) and calls[-1].name == _LOOK_UP_OF_ETILS and "://" in str(error):
            raise UserError(
                f"{error.args[0]} paths cannot be read or written: download the file, or give a local or a "
                "gs:// path"
            ) from error
        tensorflow = sys.modules.get("tensorflow")  # without it, there are no such errors
        if (
            tensorflow is None
            or not isinstance(error, tensorflow.errors.OpError)
            or not any(use in call.filename for use in _USES_OF_FILES for call in calls)
        ):
            raise
        text = " ".join(_message(error).split())
        raise UserError(
            f"{text} ({type(error).__name__} of the file system). Check the path, the room there and your "
            "rights to it; if the file system did not answer, start again with the same flags"
        ) from error


def quiet() -> None:
    """Limits TensorFlow's output to errors; it logs with absl, too.

    On a terminal, log lines appear above the progress bars.
    """
    log, handler = logging.getLogger(), absl_logging.get_absl_handler()
    if handler in log.handlers and sys.stderr and sys.stderr.isatty():
        from xlnet_tf.progress_bar import LogAboveBars  # here, as its import takes as long as the rest

        log.removeHandler(handler)
        log.addHandler(LogAboveBars(handler))
    absl_logging.set_verbosity(absl_logging.WARNING)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    absl_logging.get_absl_logger().addFilter(_is_no_note_of_tensorflow)
    handler.addFilter(_is_not_reported_later)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    logging.getLogger("grpc").setLevel(logging.CRITICAL)  # it logs what it raises, with a traceback


def quiet_abseil() -> None:
    """Applies TF_CPP_MIN_LOG_LEVEL to XLA's log, which TensorFlow forgets; call it after its import."""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL")
    if level in ("1", "2", "3"):
        with contextlib.suppress(OSError, AttributeError):  # another version's log does not matter
            ctypes.CDLL("libtensorflow_cc.so.2")[_SET_MIN_LOG_LEVEL](int(level))


def _is_not_reported_later(record: logging.LogRecord) -> bool:
    """Returns False for Beam's traceback of an error that the command reports in one line."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt | UserError))


def _is_no_note_of_tensorflow(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or "/tensorflow/python/" not in record.pathname


def run(main: Callable[[Sequence[str]], None], positional: str | None = None, after_ctrl_c: str = "") -> None:
    """Runs an absl main; expected errors become one clean message on stderr and an exit status.

    The status is 1; 130 after Ctrl-C; 75 after SIGTERM and other interruptions that the same command resumes;
    and 141, without a message, if nobody reads the output any more (`... | head -1`). Characters that the
    terminal's encoding lacks are printed as escape sequences. TensorFlow's own log shows errors only.
    `after_ctrl_c` tells what the same command does if it is started again; for `positional` see parse.
    """

    def guarded(argv: Sequence[str]) -> None:
        quiet()
        try:
            with tf_errors_as_user_errors():
                main(argv)
        except (UserError, OSError) as error:
            if signals.received or (isinstance(error, BrokenPipeError) and _nobody_reads()):
                raise
            print(f"ERROR: {command_line.spelled(_plain(error))}", file=sys.stderr)
            sys.exit(1)
        except UnicodeEncodeError as error:
            # Python's form of file names that are not UTF-8; TensorFlow accepts only UTF-8.
            if not "\udc80" <= error.object[error.start] <= "\udcff":
                raise
            where = error.object[max(0, error.start - 60) : error.start + 20]
            print(
                f"ERROR: {ascii(where)[1:-1]}: not valid UTF-8; names of files, and texts, have to be",
                file=sys.stderr,
            )
            sys.exit(1)
        except Interrupted as reason:
            print(f"INTERRUPTED: {reason}", file=sys.stderr)
            sys.exit(reason.EXIT_STATUS)

    gc.set_threshold(50_000)  # else Python's garbage collector slows down loading TensorFlow's modules
    with stdout_guard(), Signals(after_ctrl_c) as signals:
        try:
            app.run(guarded, flags_parser=functools.partial(command_line.parse, positional=positional))
        except SystemExit:
            raise
        except BaseException:
            if not signals.received:
                raise
            signals.exit()
        finally:
            print(end="", flush=True)


@contextlib.contextmanager
def stdout_guard() -> Iterator[None]:
    """Exits if the output is not read or cannot be written; escapes what the terminal cannot show."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # whoever started us has closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    except OSError as error:  # about stdout or stderr
        # What is left in the buffers goes nowhere; else the interpreter would complain at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        if isinstance(error, BrokenPipeError):
            os.dup2(nowhere, _STDERR)
            sys.exit(_UNREAD_OUTPUT)
        if not getattr(error.__context__, "code", None):  # else the command has reported its error
            print(f"ERROR: the output cannot be written: {reason(error)}", file=sys.stderr)
        sys.exit(1)


def _plain(error: Exception) -> str:
    """Returns an error's message; a system error's without its number, beginning with the file."""
    if isinstance(error, OSError) and error.filename and not error.filename2:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _NO_ROOM:  # without a file name; files.writing adds one
        return (
            f"the output or a temporary file cannot be written: {error.strerror}. Make room, and start again"
        )
    return str(error)


def _nobody_reads() -> bool:
    """Returns whether stdout or stderr is a pipe whose reader has ended."""
    poll = select.poll()
    for output in (_STDOUT, _STDERR):
        poll.register(output, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))

"""Ctrl-C and SIGTERM: a command ends with one line, and a status that says whether to start it again."""

import os
import signal
import sys
from collections.abc import Callable, Iterable

# Other modules are imported where used: before `end_while_importing` runs, Ctrl-C shows a traceback.

EXIT_STATUS = {
    signal.SIGINT: 130,  # as a shell reports a program that Ctrl-C ended
    signal.SIGTERM: 75,  # EX_TEMPFAIL of sysexits.h: "the user is invited to retry"
}
_LINES = {
    signal.SIGINT: "INTERRUPTED: Ctrl-C",
    signal.SIGTERM: "INTERRUPTED: SIGTERM: start the same command again",
}
# Code that is not Python's, as XLA's compiler, may keep Python from handling a signal for minutes. After this
# time the process just ends. Training, whose steps may take longer, handles signals itself.
_GRACE_SECONDS = 3.0
_STDERR = 2


def end_while_importing() -> None:
    """Lets a command (`python -m PACKAGE.X`, xlnet-tf) end at once on a signal while it imports.

    The package calls it, as it is imported first; in any other program it does nothing.
    """
    if sys.argv[0] == "-m" or sys.argv[0].endswith("/xlnet-tf"):  # only then: later it is the command's path
        for number in unignored_signals():
            signal.signal(number, _end_at_once)


class Signals:
    """Turns Ctrl-C and SIGTERM, inside of a `with` block, into a KeyboardInterrupt."""

    # Number of the first signal; None: none came. The KeyboardInterrupt may leave the block as another error.
    received: int | None = None

    def __init__(self, after_ctrl_c: str = ""):
        self._lines = _LINES | {signal.SIGINT: ": ".join(filter(None, (_LINES[signal.SIGINT], after_ctrl_c)))}

    def __enter__(self) -> "Signals":
        import atexit
        import threading

        self._handled = threading.Event()
        self._before: dict[int, object] = dict.fromkeys(unignored_signals())
        for number in self._before:  # at the very end, when the status is settled and no handler is called
            atexit.register(signal.signal, number, signal.SIG_IGN)
        self._unraisable, sys.unraisablehook = sys.unraisablehook, self._raise_later
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), daemon=True).start()
        for number in self._before:  # last: until here, the earlier handlers end the process
            self._before[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, *error) -> None:
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._writer)
        sys.unraisablehook = self._unraisable
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def exit(self) -> None:
        """Prints the line of the signal and exits; a second signal ends the process at once.

        Other threads have a few seconds to end.
        """
        import threading

        status = EXIT_STATUS[self.received]
        self._before = dict.fromkeys(self._before, lambda *_: os._exit(status))
        _say(self._lines[self.received])
        late = threading.Timer(_GRACE_SECONDS, os._exit, (status,))
        late.daemon = True
        late.start()
        exec("")  # else a KeyboardInterrupt that left an earlier exec ends the process, whatever its status
        sys.exit(status)

    def _notice(self, number: int, frame: object) -> None:
        self.received = self.received or number
        self._handled.set()
        raise KeyboardInterrupt

    def _raise_later(self, unraisable: object) -> None:
        """Repeats a signal that came where Python could not raise, as in `__del__`."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._unraisable(unraisable)
        elif self.received:
            import threading

            threading.Timer(0.05, os.kill, (os.getpid(), self.received)).start()

    def _watch(self, reader: int) -> None:
        """Ends the process if the main thread does not return to Python to handle a signal."""
        with os.fdopen(reader, "rb", buffering=0) as numbers:
            while read := numbers.read(1):
                if read[0] in self._before and not self._handled.wait(_GRACE_SECONDS):
                    _say(self._lines[read[0]])
                    os._exit(EXIT_STATUS[read[0]])


def blocked(start: Callable, *arguments: object) -> object:
    """Calls a function whose new threads and processes do not receive Ctrl-C, and returns its result.

    A terminal sends it to all processes of a command; only one should handle it and end the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return start(*arguments)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_processes(others: Iterable[object]) -> None:
    """Ends the processes that this one has started with `multiprocessing`, except `others`."""
    import multiprocessing  # not imported by commands that need no processes

    for process in set(multiprocessing.active_children()).difference(others):
        process.terminate()


def unignored_signals() -> list[int]:
    """Returns the signals that the parent process has not set to be ignored."""
    return [number for number in EXIT_STATUS if signal.getsignal(number) != signal.SIG_IGN]


def _end_at_once(number: int, frame: object = None) -> None:
    _say(_LINES[number])
    os._exit(EXIT_STATUS[number])


def _say(line: str) -> None:
    begin = "\n" if os.isatty(_STDERR) else ""  # after ^C or a progress bar
    try:
        os.write(_STDERR, f"{begin}{line}\n".encode())
    except OSError:
        return  # nobody reads it

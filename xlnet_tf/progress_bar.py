"""Progress bars of all commands: bars on a terminal, plain lines elsewhere."""

import logging
import sys
import time

import tqdm

PLAIN_SECONDS = 10  # between the lines of a bar in a log


class ProgressBar(tqdm.tqdm):
    """A tqdm bar on stderr; if stderr is not a terminal, a plain line every few seconds."""

    def __init__(self, *args, **options):
        if not sys.stderr.isatty():
            options = {"bar_format": "{l_bar}{r_bar}"} | options | {"file": _PlainLines(), "position": 0}
        super().__init__(*args, **options)


class LogAboveBars(logging.Handler):
    """Writes log lines, by a handler for stderr, above the bars of a terminal."""

    def __init__(self, handler: logging.Handler):
        super().__init__()
        self._handler = handler

    def emit(self, record: logging.LogRecord):
        with tqdm.tqdm.external_write_mode(sys.stderr):
            self._handler.handle(record)


class _PlainLines:
    """A file for tqdm that turns its redrawn line into separate lines."""

    def __init__(self):
        self._stream, self._latest, self._written = sys.stderr, "", ""
        self._due = time.monotonic() + PLAIN_SECONDS  # a short evaluation is not worth a line

    def write(self, text: str):
        if line := text.strip("\r\n ").replace("|| ", " "):
            self._latest = line
        ends = text == "\n"  # so tqdm closes a bar
        if self._latest != self._written and (ends or time.monotonic() >= self._due):
            self._stream.write(self._latest + "\n")
            self._written, self._due = self._latest, time.monotonic() + PLAIN_SECONDS

    def isatty(self) -> bool:
        return False

    def flush(self):
        self._stream.flush()

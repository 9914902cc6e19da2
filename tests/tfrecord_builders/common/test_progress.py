"""tfrecord_builders/common/progress.py: the rate and the time left are those of what is built."""

import io
import logging
import re
import sys

import pytest

from tfrecord_builders.common import progress
from tfrecord_builders.common.progress import BuildProgress
from xlnet_tf.progress_bar import LogAboveBars, ProgressBar


@pytest.fixture
def clock(monkeypatch):
    """Time stands still but when the test says otherwise; the bars that were made."""

    class Clock:
        now = 1000.0
        bars = []

        def time(self):
            return self.now

    class Bar(ProgressBar):
        def __init__(self, **settings):
            super().__init__(**settings)
            self._time = clock.time
            self.start_t = self.last_print_t = clock.now
            clock.bars.append(self)

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "ProgressBar", Bar)
    return clock


def shown(clock):
    values = clock.bars[-1].format_dict
    rate = (values["n"] - values["initial"]) / values["elapsed"]
    return values["n"], rate, (values["total"] - values["n"]) / rate


def test_units_end_in_bursts(clock, capsys):
    with BuildProgress(1000, "building", True) as bar:
        for seconds, sizes in ((10, (100, 40, 60)), (0, (100,)), (10, (100,))):
            clock.now += seconds
            for size in sizes:
                bar.add(size, text_bytes=size, records=3)
        assert shown(clock) == (400, 20, 30) and clock.bars[-1].postfix == "records=15"
        bar.add(600, text_bytes=60_000_000, records=1)  # compressed text
        assert "text=3.00MB/s" in clock.bars[-1].postfix
    assert "100%" in capsys.readouterr().err


def test_units_already_done_do_not_count_for_the_rate(clock):
    with BuildProgress(1000, "building", True) as bar:
        clock.now += 7
        bar.add(500, text_bytes=500, records=9, kept=True)
        clock.now += 10
        bar.add(100, text_bytes=100, records=2)
        assert shown(clock) == (600, 10, 40)
        bar.add(300, text_bytes=300, records=4, kept=True)  # between others
        assert shown(clock) == (900, 10, 10)
        assert clock.bars[-1].postfix == "records=15, kept=13"


@pytest.mark.parametrize("leave", [True, False])
def test_a_log_gets_plain_lines(capsys, leave):
    with ProgressBar(total=3, desc="outer") as outer, ProgressBar(total=50, desc="dev", leave=leave) as bar:
        for _ in range(50):
            bar.update()
            bar.refresh()
        outer.update(3)
        outer.refresh()
    text = capsys.readouterr().err
    assert not {"\r", "\x1b", ""} & {*text, *text.splitlines()}
    assert [line.split("[")[0].strip() for line in text.splitlines()] == [
        *(["dev: 100% 50/50"] if leave else []),
        "outer: 100% 3/3",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def lines(self):
        """What it shows: each carriage return overwrites a line from its begin."""
        shown, row, column = [""], 0, 0
        for part in re.findall(r"\n|\r|\x1b\[A|[^\n\r\x1b]+", self.getvalue()):
            if part == "\n":
                row, column = row + 1, 0
                shown += [""] * (row == len(shown))
            elif part in ("\r", "\x1b[A"):
                row, column = row - (part != "\r"), column * (part != "\r")
            else:
                shown[row] = shown[row][:column].ljust(column) + part + shown[row][column + len(part) :]
                column += len(part)
        return [line.rstrip() for line in shown]


def test_a_line_of_the_log_and_a_bar_are_kept_apart(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = LogAboveBars(logging.StreamHandler(terminal))
    record = logging.makeLogRecord({"msg": "a warning"})
    with ProgressBar(total=9, desc="outer", ncols=60) as outer, ProgressBar(total=5, desc="inner", ncols=60):
        outer.update(3)
        outer.refresh()
        handler.handle(record)
        warning, *bars = terminal.lines()
        assert warning == "a warning" and [line.split(":")[0] for line in bars] == ["outer", "inner"]
        assert "| 3/9 [" in bars[0] and bars[0].endswith("]") and bars[1].endswith("]")
    handler.handle(record)
    assert terminal.lines()[-2:] == ["a warning", ""]

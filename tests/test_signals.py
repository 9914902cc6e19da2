"""Ctrl-C and SIGTERM, wherever they come: one line, a status, no traceback."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.integration

LINES = {
    signal.SIGINT: (130, "INTERRUPTED: Ctrl-C\n"),
    signal.SIGTERM: (75, "INTERRUPTED: SIGTERM: start the same command again\n"),
}
PROGRAM = """
import sys, time
from xlnet_tf import errors

class Slow:
    def __del__(self):
        print('ready', flush=True)
        time.sleep(600)

def main(_):
    {body}

errors.run(main)
"""
READY = "print('ready', flush=True)"


def end(command, number, when, group=False):
    """Starts a command, sends it a signal, and returns its status and what it wrote to stderr.

    Args:
        command: the command.
        number: of the signal.
        when: the first characters of a line of stdout to wait for, or seconds.
        group: whether all processes get it, as from a terminal.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, **pipes)
    try:
        if isinstance(when, str):
            assert any(line.startswith(when) for line in process.stdout)
        else:
            time.sleep(when)
        (os.killpg if group else os.kill)(process.pid, number)
        error = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    return process.returncode, error


@pytest.mark.parametrize("number", LINES)
@pytest.mark.parametrize(
    "body",
    [
        f"{READY}; time.sleep(600)",
        f"{READY}\n    try: time.sleep(600)\n    except BaseException: raise errors.UserError('lost')",
        f"{READY}\n    try: time.sleep(600)\n    finally: raise ImportError('half imported')",
        "Slow(); time.sleep(600)",  # what is raised in __del__ is lost
    ],
    ids=["what the same command does", "another error", "an import", "__del__"],
)
def test_a_signal_ends_a_command_with_one_line(body, number):
    status, line = LINES[number]
    program = PROGRAM.format(body=body)
    if body.startswith(f"{READY};"):
        program = program.replace("(main)", "(main, after_ctrl_c='it resumes')")
        line = line.replace("Ctrl-C", "Ctrl-C: it resumes")
    assert end([sys.executable, "-c", program], number, "ready") == (status, line)


@pytest.mark.parametrize("number", LINES)
def test_a_signal_in_exec_ends_a_command_with_its_status(number, tmp_path, monkeypatch):
    """As in dataclasses that are imported; the status of `python -m` would be that of a killed process."""
    (tmp_path / "slow_command.py").write_text(PROGRAM.format(body=f'exec("{READY}; time.sleep(600)")'))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert end([sys.executable, "-m", "slow_command"], number, "ready") == LINES[number]


def test_a_signal_ends_code_that_is_not_pythons():
    """As XLA's compiler, which Python waits for."""
    wait = "c.pthread_mutex_lock(mutex)"  # the second time for ever
    begin = "import ctypes; c = ctypes.CDLL(None); mutex = ctypes.create_string_buffer(64)"
    program = PROGRAM.format(body=f"{begin}; {wait}; {READY}; {wait}")
    assert end([sys.executable, "-c", program], signal.SIGINT, "ready") == LINES[signal.SIGINT]


@pytest.fixture
def stuck_trainer(tmp_path, monkeypatch):
    """A SentencePiece whose trainer keeps Python's lock and never ends; returns where it writes its pid."""
    (tmp_path / "sitecustomize.py").write_text(f"""
import ctypes, os, pathlib, sentencepiece
def train(sentence_iterator, **_):
    assert list(sentence_iterator) == ["some text"]
    pathlib.Path({str(tmp_path / "new")!r}).write_text(str(os.getpid()))
    os.rename({str(tmp_path / "new")!r}, {str(tmp_path / "pid")!r})
    mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)
sentencepiece.SentencePieceTrainer.Train = train
""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "pid"


TRAINING = PROGRAM.format(
    body=f"""
    from xlnet_tf.text import training
    def texts():
        yield "some text"
        {READY}
    training.train_tokenizer(texts(), 100)
    """
)


@pytest.mark.parametrize("number", LINES)
def test_a_signal_ends_the_training_of_a_tokenizer(stuck_trainer, number):
    assert end([sys.executable, "-c", TRAINING], number, "ready", group=True) == LINES[number]


def test_the_trainer_of_a_tokenizer_ends_with_the_process_that_started_it(stuck_trainer):
    process = subprocess.Popen([sys.executable, "-c", TRAINING], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    wait_until(stuck_trainer.exists)
    trainer = pathlib.Path("/proc", stuck_trainer.read_text(), "stat")
    assert trainer.parent.name != str(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not trainer.exists() or trainer.read_text().split()[2] == "Z")


def wait_until(condition, seconds=180):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_what_is_ignored_stays_ignored():
    body = f"import signal; {READY}; time.sleep(1); print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + PROGRAM.format(body=body)
    assert end([sys.executable, "-c", program], signal.SIGINT, "ready") == (0, "")


@pytest.mark.parametrize("number", LINES)
def test_a_signal_between_imports_and_main_ends_a_command_with_one_line(number):
    """When errors.run takes the signals over."""
    program = f"""
import os, sys, threading
sys.argv = ["-m"]
import run_scripts
from xlnet_tf import errors
start = threading.Thread.start
threading.Thread.start = lambda thread: (start(thread), os.kill(os.getpid(), {int(number)}))
errors.run(lambda _: None)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == LINES[number]


@pytest.mark.parametrize("number", LINES)
def test_a_signal_after_the_end_of_a_command_changes_nothing(number):
    """When Python handles none any more."""
    body = (
        "import functools, os, sys\n"
        f"    end = functools.partial(os.kill, os.getpid(), {int(number)})\n"
        "    sys.late = type('Late', (), {'__del__': lambda _: end()})()\n"
        f"    {READY}"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")


@pytest.mark.parametrize("number", LINES)
@pytest.mark.parametrize("seconds", [0.2, 0.5, 1.0])
def test_a_signal_ends_imports_with_one_line(seconds, number, tmp_path):
    slow = tmp_path / "absl"  # an import that takes long
    slow.mkdir()
    (slow / "__init__.py").write_text("import time; time.sleep(600)")
    module = "run_scripts.pretrain" if seconds == 0.5 else "tfrecord_builders.pretraining.__main__"
    program = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['-m']; import {module}"
    assert end([sys.executable, "-c", program], number, seconds) == LINES[number]

"""What a command prints and returns when its output cannot take everything."""

import os
import re
import subprocess
import sys

import pytest

from xlnet_tf import errors

PROGRAM = """
from xlnet_tf import errors
def main(_):
    {body}
errors.run(main)
"""


def run(body, arguments=(), encoding="utf-8", **kwargs):
    command = [sys.executable, "-c", PROGRAM.format(body=body), *arguments]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    return subprocess.run(command, env=environment, **kwargs)


@pytest.fixture
def unread():
    """The writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_paths_of_no_file_system_are_one_line():
    ended = run("from etils import epath; epath.Path('https://example.org/a.csv').exists()")
    assert ended.returncode == 1
    assert re.fullmatch(rb"ERROR: https:// paths cannot be read or written: download .*\n", ended.stderr)


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("print('few')", ()),
        ("print('few'); raise errors.UserError('x')", ()),
        ("print('few')", ("--help",)),
    ],
)
def test_a_broken_pipe_ends_quietly(body, arguments, unread):
    result = run(body, arguments, stdout=unread)
    assert result.returncode == 141
    assert result.stderr in (b"", b"ERROR: x\n" * (not arguments))


def test_a_broken_pipe_of_messages_ends_quietly(unread):
    body = "import sys; print('few', file=sys.stderr)"
    assert run(body, stderr=unread).returncode == 141
    assert run("raise errors.UserError('x')", stderr=unread).returncode == 141


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("open('/nowhere/a.txt')", b"/nowhere/a.txt: No such file or directory"),
        ("raise FileNotFoundError('/a does not exist')", b"/a does not exist"),
    ],
)
def test_an_error_of_a_file_names_it_first_and_a_pipe_of_something_else_is_an_error(body, message):
    result = run(body)
    assert (result.returncode, result.stderr) == (1, b"ERROR: " + message + b"\n")


def test_a_name_that_is_not_utf_8_is_one_line():
    """Where it has to be; half characters, which are a fault of the program, stay errors of Python's."""
    result = run(r"('runs/' + '\udcff' + 'a' * 99).encode()")
    assert result.returncode == 1
    assert re.fullmatch(
        rb"ERROR: runs/\\udcffa{19}: not valid UTF-8; names of files, and texts, have to be\n", result.stderr
    )
    assert b"Traceback" in run(r"'\ud800'.encode()").stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_on_a_full_disk_is_one_line(monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        result = run("print('few')", stdout=full)
    assert result.returncode == 1
    assert re.fullmatch(rb"ERROR: the output .*cannot be written: No space left on device.*\n", result.stderr)


def test_closed_streams_are_no_error():
    body = "import sys; sys.stdout.writelines(['few']); print('x', file=sys.stderr)"
    assert run(body, preexec_fn=lambda: os.closerange(1, 3)).returncode == 0


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", rb"\xfc \u4e2d \udcff"),
        ("latin-1", b"\xfc " + rb"\u4e2d \udcff"),
        ("utf-8", "ü 中".encode() + rb" \udcff"),
    ],
)
def test_what_the_terminal_cannot_show_is_escaped(encoding, expected):
    text = r"'\u00fc \u4e2d \udcff'"
    result = run(f"print({text})", encoding=encoding)
    assert (result.returncode, result.stdout.strip()) == (0, expected)
    result = run(f"raise errors.UserError({text})", encoding=encoding)
    assert (result.returncode, result.stderr.strip()) == (1, b"ERROR: " + expected)


def test_what_beam_logs_about_the_error_that_ends_a_command_is_left_out():
    body = "from absl import logging; error = errors.UserError('x'); "
    body += "logging.error('y', exc_info=error); raise error"
    assert run(body).stderr == b"ERROR: x\n"
    assert b"ERROR: y" in run(body.replace("errors.UserError", "OSError")).stderr


@pytest.mark.integration
def test_commands_show_only_the_errors_of_tensorflows_log():
    script = """
from xlnet_tf import errors
def main(_):
    import tensorflow as tf
    from absl import logging
    tf.get_logger().info("noise"), tf.get_logger().warning("noise"), logging.info("noise")
    exec(compile("logging.warning('noise')", "/tensorflow/python/file.py", "exec"))
    logging.warning("a warning of ours")
    tf.get_logger().error("what went wrong")
    from xlnet_tf.layers import kernels
    tf.function(lambda x: x * x, jit_compile=True)(tf.constant(3))
errors.run(main)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "what went wrong" in done.stderr and "a warning of ours" in done.stderr
    assert "noise" not in done.stderr
    assert "XLA" not in done.stderr


def test_a_log_has_no_traceback_of_ctrl_c():
    body = """
    import logging
    try: raise KeyboardInterrupt
    except KeyboardInterrupt: logging.exception("lost")
    logging.error("kept")"""
    assert run(body).stderr == b"ERROR: kept\n"


def test_extras_are_installed_from_where_the_project_is(monkeypatch):
    """No index has it: only where it is installed, pip knows the extras of its name."""
    monkeypatch.setattr(errors.metadata, "metadata", lambda name: {"Name": name})
    assert errors.install_command("hub") == "pip install 'xlnet-tf[hub]'"

    def missing(name):
        raise errors.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(errors.metadata, "metadata", missing)
    found = re.fullmatch(r"pip install '(.*)\[hub\]'", errors.install_command("hub"))
    assert os.path.samefile(found[1], os.path.join(os.path.dirname(errors.__file__), ".."))

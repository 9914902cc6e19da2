"""Runs commands in forks of one process that has imported TensorFlow, so that each starts in no time.

`start(folder)` puts programs `python`, `python3` and `xlnet-tf` into a folder: with it at the head of PATH, a
shell's `python -m run_scripts.X` and `xlnet-tf X` become forks of that process, with the shell's folder,
environment and files. Any other use of `python` is the interpreter's own.
"""

import contextlib
import importlib
import json
import os
import pathlib
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {"run_scripts", "tfrecord_builders", "tests"}  # whose modules run in forks
# What the commands import anyway; each is one that takes long.
PRELOADED = (
    "tensorflow",
    "tf_keras",
    "tensorflow_text",
    "matplotlib.figure",
    "pandas",
    "sentencepiece",
    "official.core.exp_factory",
    "xlnet_tf.models.classifier",
    "xlnet_tf.generation.language_model",
    "xlnet_tf.serving.export",
    "xlnet_tf.tasks.finetuning",
    "xlnet_tf.tasks.pretraining.task",
    "xlnet_tf.training.trainer",
)
CLIENT = """#!{python} -IS
import array, json, os, signal, socket, sys
name, *arguments = os.path.basename(sys.argv[0]), *sys.argv[1:]
module = None
if name == "xlnet-tf":
    module = "run_scripts"
elif arguments[:1] == ["-m"] and arguments[1].split(".")[0] in {packages}:
    module, arguments = arguments[1], arguments[2:]
if module is None:
    os.environ["PYTHONPATH"] = {repository!r}
    os.execv({python!r}, [{python!r}, *arguments])
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
request = json.dumps([module, arguments, os.getcwd(), dict(os.environ), os.getpgrp()]).encode()
files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
connection.sendmsg([len(request).to_bytes(8, "big")], files)
connection.sendall(request)
child = int.from_bytes(connection.recv(8), "big")
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(child, number))
status = connection.recv(1)
sys.exit(status[0] if status else 1)
"""


@contextlib.contextmanager
def start(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Starts the process for the block; yields the folder with the programs."""
    programs, address = folder / "bin", str(folder / "server")
    programs.mkdir(parents=True)
    text = CLIENT.format(
        python=sys.executable, packages=PACKAGES, repository=str(REPOSITORY), address=address
    )
    for name in ("python", "python3", "xlnet-tf"):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    ready, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.server", address, str(writing)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,  # which ends with this process, however it ends
        pass_fds=[writing],
    )
    os.close(writing)
    try:
        if not os.read(ready, 1):
            raise RuntimeError(f"tests.docs.server ended with status {process.wait()}")
        yield programs
    finally:
        os.close(ready)
        process.stdin.close()
        process.wait()


def _serve(address: str, ready: int) -> tuple[str, list[str]]:
    """Answers requests until stdin ends; returns in forks only, with the module to run and its arguments.

    At the end it ends all that it was asked to run.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    os.write(ready, b"1")
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        groups = set()
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    for group in groups - {os.getpgrp()}:
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(group, signal.SIGKILL)
                    sys.exit()
                if key.fileobj is not listener:
                    child, connection = key.data
                    _, status = os.waitpid(child, 0)
                    code = os.waitstatus_to_exitcode(status)
                    with contextlib.suppress(OSError):  # whoever asked has been killed
                        connection.sendall(bytes([code if code >= 0 else 128 - code]))
                    connection.close()
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    continue
                connection, _ = listener.accept()
                head, files, _, _ = socket.recv_fds(connection, 8, 3)
                body = b""
                while len(body) < int.from_bytes(head, "big"):
                    body += connection.recv(1 << 16)
                module, arguments, folder, environment, group = json.loads(body)
                groups.add(group)
                if child := os.fork():
                    connection.sendall(child.to_bytes(8, "big"))
                    selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, connection))
                    for file in files:
                        os.close(file)
                    continue
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                listener.close()
                connection.close()
                with contextlib.suppress(OSError):  # the group has ended
                    os.setpgid(0, group)
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(environment)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                return module, arguments


def main():
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in PRELOADED:
        importlib.import_module(name)
    from xlnet_tf import errors

    errors.quiet_abseil()
    module, arguments = _serve(sys.argv[1], int(sys.argv[2]))
    # Those of the server know which kind of file they had, a pipe or a terminal.
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

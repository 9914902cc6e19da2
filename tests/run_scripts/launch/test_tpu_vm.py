"""The script for the TPU VM, run on this machine: with a home of its own, and a stand-in for Python."""

import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

from run_scripts.launch.cloud_tpu import SCRIPT
from tests.helpers.cloud.harness import World

# Plays python3, the environment's python, and the training: what the last one does is in $HOME/play.
PYTHON = r"""#!/bin/bash
case "$*" in
"-c import ensurepip") ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip "*) echo "$*" >>"$HOME/pip" ; [ ! -e "$HOME/pip-fails" ] ;;
"- "*) echo "installed: $(cat "$HOME/versions" 2>/dev/null)"; cat >/dev/null; [ ! -e "$HOME/wrong" ] ;;
"-c import libtpu"*) echo /lib/libtpu.so ;;
"-m run_scripts."*) echo "$TF_PLUGGABLE_DEVICE_LIBRARY_PATH|$TPU_NAME|$*" >>"$HOME/trained"; . "$HOME/play" ;;
*) echo "unexpected: $*" >>"$HOME/trained"; exit 9 ;;
esac
"""


@pytest.fixture
def vm(tmp_path):
    """A function that calls the script on a VM with a home of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text(PYTHON)
    (tmp_path / "bin/python3").chmod(0o755)
    (tmp_path / "play").write_text("echo step 1\n")
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def shell(*words):
        options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "timeout": 60}
        done = subprocess.run(words, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(*words):
        return shell("bash", str(SCRIPT), *words)

    call.home, call.shell = tmp_path, shell
    return call


START = ("start", "1000", "xlnet.whl", "2.20.0", "local", "run_scripts.pretrain", "--x=a b")


def ended(vm, offset="0"):
    """Waits for the end; returns the status and the log from an offset on."""
    for _ in range(300):
        state, code, _, log = re.match(
            r"xlnet-job (\w+) (-?\d+) (\d+)\n(.*)", vm("look", offset), re.DOTALL
        ).groups()
        if state == "ended":
            return int(code), log
        time.sleep(0.05)
    raise AssertionError(log)


def test_a_new_vm_has_nothing(vm):
    assert vm("look", "0") == "xlnet-job new -1 0\n"


def test_it_installs_once_trains_and_keeps_the_status(vm):
    vm(*START)
    code, log = ended(vm)
    assert code == 0 and log.endswith("step 1\n")
    installed = (vm.home / "pip").read_text()
    assert installed.index("install --use-pep517 xlnet.whl") < installed.index("uninstall --yes tensorflow")
    assert installed.index("tensorflow-tpu==2.20.0") < installed.index("libtpu~=0.0.14")
    (vm.home / "play").write_text("exit 75\n")
    vm(*START)
    assert ended(vm)[0] == 75
    assert (vm.home / "pip").read_text() == installed
    assert (vm.home / "trained").read_text() == "/lib/libtpu.so||-m run_scripts.pretrain --x=a b\n" * 2


def test_tested_versions_are_installed_if_their_list_came_along(vm):
    (vm.home / "requirements.lock").write_text(
        "numpy==2.3.0 ; python_version >= '3.11' \\\n    --hash=sha256:1\n    # via x\n"
    )
    vm(*START)
    ended(vm)
    assert "install --use-pep517 --constraint" in (vm.home / "pip").read_text()
    assert (vm.home / "xlnet-job/constraints").read_text() == "numpy==2.3.0 ; python_version >= '3.11'\n"


def test_a_slice_keeps_tensorflow_and_is_reached_by_name(vm):
    vm(*START[:4], "my-slice", *START[5:])
    ended(vm)
    assert "tensorflow-tpu" not in (vm.home / "pip").read_text()
    assert (vm.home / "trained").read_text().startswith("|my-slice|")


def test_it_never_trains_twice_at_once_and_stop_asks_to_save(vm):
    (vm.home / "play").write_text("trap 'exit 75' TERM; echo ready; while true; do sleep 0.05; done\n")
    vm(*START)
    while "ready" not in vm("look", "0"):
        time.sleep(0.05)
    pid = (vm.home / "xlnet-job/pid").read_text()
    vm(*START)  # waits 2 s for the lock
    assert vm("look", "0").startswith("xlnet-job running")
    assert (vm.home / "trained").read_text().count("\n") == 1 and (
        vm.home / "xlnet-job/pid"
    ).read_text() == pid
    vm("stop")
    assert ended(vm)[0] == 75


def test_the_budget_ends_a_training_whose_launch_is_gone(vm):
    (vm.home / "play").write_text("trap 'exit 75' TERM; while true; do sleep 0.05; done\n")
    vm("start", "1", *START[2:])
    assert ended(vm)[0] == 75


@pytest.mark.parametrize("file", ["pip-fails", "wrong"])
def test_what_cannot_be_installed_or_is_wrong_is_an_error(vm, file):
    (vm.home / file).touch()
    vm(*START)
    assert ended(vm)[0] == 1
    assert not (vm.home / "trained").exists()


def test_a_restarted_vm_is_like_a_lost_host(vm):
    (vm.home / "xlnet-job").mkdir()
    (vm.home / "xlnet-job/started").touch()
    assert vm("look", "0") == "xlnet-job ended 75 0\n"


def test_a_launch_drives_the_script(vm, tmp_path):
    """From copying it to the VM to the end, with an interruption: nothing of the script is played here."""
    (vm.home / "play").write_text("date >>$HOME/times; echo step $(wc -l <$HOME/times); sleep 0.1\n"
                                  "[ $(wc -l <$HOME/times) = 2 ] || exit 75\n")  # fmt: skip
    folder = tmp_path / "job"
    folder.mkdir()
    world = World(folder, package=None)
    play = world.cloud.run

    def run(command, text=None):
        status, out, error = play(command, text)
        if "scp" in command:
            shutil.copy(command[command.index("scp") + 1], vm.home)
        elif "ssh" in command:
            (text,) = (word.partition("=")[2] for word in command if word.startswith("--command="))
            out = vm.shell("bash", "-c", text)
        return status, out, error

    world.cloud.run = run
    world.clock.before = lambda count: time.sleep(0.05)
    shown = world.launch()
    lines = [line for line in shown.splitlines() if line.startswith("step")]
    assert lines == ["step 1", "step 2"] and "resuming" in shown
    assert (vm.home / "pip").read_text().count("install --use-pep517") == 1
    assert "--model_dir=gs://b/runs/base --strategy=tpu --tpu=local" in (vm.home / "trained").read_text()
    world.assert_nothing_left()


def test_a_log_is_read_in_parts(vm):
    folder = pathlib.Path(vm.home / "xlnet-job")
    folder.mkdir()
    (folder / "started").touch()
    (folder / "log").write_text("ab" * 900_000)
    first = vm("look", "0")
    assert (
        first.startswith("xlnet-job ended 75 1000000\n")
        and len(first) == len("xlnet-job ended 75 1000000\n") + 10**6
    )
    assert len(vm("look", "1000000").partition("\n")[2]) == 800_000

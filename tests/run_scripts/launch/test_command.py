"""The command itself, with the stand-ins for gcloud and kubectl first on PATH."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY
from tests.helpers.cloud.harness import BIN, GKE, World
from tests.helpers.cloud.standin import EMPTY, Cloud


class Shell:
    """A user's shell in a folder with a job, whose cloud plays a scenario."""

    def __init__(self, folder, scenario=None, **settings):
        self.world = World(folder, **settings)
        self.folder = folder
        (folder / "scenario.json").write_text(json.dumps(scenario or {}))
        self.environment = os.environ | {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "STANDIN_FOLDER": str(folder),
            "STANDIN_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
        }
        (folder / "state.json").write_text(json.dumps(EMPTY | {"objects": self.world.cloud.state["objects"]}))

    def start(self, *flags, job="base.yaml"):
        command = [sys.executable, "-m", "run_scripts.launch", job, "--poll_seconds=0.01", "--skip_dry_run"]
        # Tests may run in the background, where Ctrl-C is ignored.
        return subprocess.Popen(
            [*command, *flags], cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def run(self, *flags, **options):
        process = self.start(*flags, **options)
        out, error = process.communicate(timeout=120)
        return process.returncode, out, error

    def state(self):
        with Cloud(self.folder).locked() as cloud:
            return cloud.state

    def left(self):
        return [*self.state()["resources"], *self.state()["jobsets"]]

    def wait_for(self, word):
        for _ in range(1000):
            if any(word in call for call in self.state()["calls"]):
                return
            time.sleep(0.02)
        raise AssertionError(word)


def commands(text):
    """Returns the words of each command that --print shows, without what differs in a run."""
    return {normal(shlex.split(line)) for line in text.splitlines() if line.startswith(("gcloud", "kubectl"))}


def normal(words):
    left_out = ("--labels=", "--metadata=", "--command=", "--since-time=", "base-trainer", "POD", "<<END")
    return tuple(word for word in words if not word.startswith(left_out))


@pytest.mark.integration
@pytest.mark.parametrize("place", [{}, {"backend": "tpu-vm"}, GKE], ids=["queued-resource", "tpu-vm", "gke"])
def test_a_launch_runs_the_commands_that_print_shows(tmp_path, place):
    shell = Shell(tmp_path, {"run": [{"looks": 4}]}, **place)
    status, printed, _ = shell.run("--print")
    assert status == 0 and not shell.state()["calls"] and not (tmp_path / "base.launch").exists()
    status, out, error = shell.run()
    assert status == 0 and out.endswith("done: gs://b/runs/base\n") and "step" in out, error
    assert "deleting the TPU" in error and "nothing is left; the run used 0.00 of 10.00 h" in error
    assert not shell.left()
    ran = {normal(call) for call in shell.state()["calls"]}
    assert ran <= commands(printed), ran - commands(printed)


@pytest.mark.integration
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_saves_and_leaves_nothing(tmp_path, number, status):
    shell = Shell(tmp_path, {"run": [{"looks": 100_000}]})
    process = shell.start()
    shell.wait_for("scp")
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == status and not shell.left()
    assert "the training saves a checkpoint" in error
    assert error.splitlines()[-1].startswith("INTERRUPTED: ") and "same command" in error.splitlines()[-1]


@pytest.mark.integration
def test_what_ctrl_c_cannot_delete_is_said(tmp_path):
    shell = Shell(tmp_path, {"run": [{"looks": 100_000}], "delete": ["denied"] * 100})
    process = shell.start()
    shell.wait_for("scp")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (
        process.returncode == 130
        and "NOT deleted, and it may cost money: run the same launch with --stop" in error
    )


@pytest.mark.integration
def test_a_second_launch_is_refused_and_a_killed_one_is_cleaned(tmp_path):
    shell = Shell(tmp_path, {"run": [{"looks": 100_000}]})
    first = shell.start()
    shell.wait_for("scp")
    status, _, error = shell.run()
    assert status == 1 and f"is in use by process {first.pid}" in error and "launching" in error
    first.kill()
    first.wait()
    assert shell.left() == ["base"]
    status, _, error = shell.run("--stop")
    assert status == 0 and "nothing is left" in error and not shell.left()
    assert shell.state()["runs"] == 1


@pytest.mark.integration
def test_errors_are_one_message(tmp_path):
    shell = Shell(tmp_path, zone="us-east1-d")
    status, out, error = shell.run()
    assert (
        status == 1
        and error.startswith("ERROR: nothing was created")
        and "accelerator: us-east1-d has no TPUs" in error
    )
    shell.environment["PATH"] = str(tmp_path)
    status, _, error = shell.run()
    assert status == 1 and "gcloud is not installed on this machine: https://" in error
    status, _, error = shell.run(job="none.yaml")
    assert status == 1 and error == "ERROR: none.yaml does not exist\n"

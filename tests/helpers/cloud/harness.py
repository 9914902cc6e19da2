"""A launch in this process, on the stand-in's cloud and a clock that only sleeping moves."""

import contextlib
import io
import os
import pathlib
import sys
from unittest import mock

import yaml

from run_scripts.launch import checks, job, supervise
from run_scripts.launch.__main__ import place
from run_scripts.launch.state import State
from run_scripts.launch.tools import Outcome, Tools
from tests.helpers.cloud.standin import Cloud

BIN = pathlib.Path(__file__).parent / "bin"  # the stand-ins' programs
POLL = 30.0
DRY_RUN = (
    "  steps  3,600, 100 in a loop\nOne pass over the data, 1,000 steps, takes 1000.0 s by these estimates.\n"
)
SETTINGS = {
    "command": "pretrain --config_file=base --train_data=gs://b/train --dev_data=gs://b/dev",
    "model_dir": "gs://b/runs/base",
    "project": "my-project",
    "zone": "us-west4-a",
    "accelerator": "v5e-8",
    "budget": {"hours": 10},
    "package": "git+https://example.org/xlnet-tf",
}
GKE = {"backend": "gke", "package": None, "image": "us-docker.pkg.dev/p/r/xlnet-tf", "cluster": "tpus"}


class Killed(BaseException):
    """The launch is gone at once, as by kill -9."""


class Clock:
    """Time passes by sleeping; `before` is called at each sleep with the number of those before it."""

    def __init__(self, before=lambda count: None):
        self.now, self.count, self.before = 1_000_000.0, 0, before

    def time(self):
        return self.now

    monotonic = time

    def sleep(self, seconds):
        assert self.count < 5_000, "the launch does not end"
        self.count += 1
        self.before(self.count - 1)
        self.now += max(seconds, 1e-3)


class World:
    """A cloud, a clock and the folder of a job.

    Args:
        folder: an empty one.
        scenario: of the stand-in.
        settings: of the job, over SETTINGS.
    """

    def __init__(self, folder, scenario=None, **settings):
        self.folder, self.clock = folder, Clock()
        self.cloud = Cloud(folder, self.clock.time)
        self.cloud.scenario = scenario or {}
        self.cloud.state["objects"] |= {"gs://b/train/manifest.json": "", "gs://b/dev/manifest.json": ""}
        self.dry_run = (0, DRY_RUN, "")
        self.calls_left = None  # until the launch is killed
        self.file = folder / "base.yaml"
        self.write(**settings)

    def write(self, **settings):
        values = {name: value for name, value in (SETTINGS | settings).items() if value is not None}
        self.file.write_text(yaml.safe_dump(values))

    def run(self, command, text, seconds):
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Killed
        if command[0] == sys.executable:
            self.cloud.state["calls"].append(command)
            return Outcome(*self.dry_run)
        return Outcome(*self.cloud.run(command, text))

    def tools(self):
        return Tools(self.clock, POLL, self.run)

    def check(self):
        """Runs the checks; returns the hours that they estimate."""
        loaded = job.load(str(self.file))
        with mock.patch.dict(os.environ, PATH=str(BIN)):
            return checks.Checks(loaded, self.tools(), self.clock, State.of(self.folder, loaded), True).run()

    def launch(self, estimate=None):
        """Launches the job; returns what was shown."""
        loaded = job.load(str(self.file))
        state = State.of(self.folder, loaded)
        machine = place(loaded, self.tools(), state.token)
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(error):
            supervise.Supervisor(loaded, machine, state, self.clock, POLL, estimate, out).run()
        return out.getvalue() + error.getvalue()

    def state(self):
        return State.of(self.folder, job.load(str(self.file)))

    def assert_nothing_left(self):
        assert not self.cloud.left() and not self.cloud.state["faults"]
        assert not self.state().created

    def called(self, *words):
        """Returns the calls that have all these words."""
        return [call for call in self.cloud.state["calls"] if set(words) <= set(call)]

"""A slice of several hosts, rehearsed on one: hosts die, hang and return; see test_hosts.py.

    python -m tests.helpers.training.rehearsal FOLDER ROUNDS [--bucket]

leaves the runs FOLDER/undisturbed and FOLDER/disturbed-0, and prints a line for each round. In each, at a
random moment or while a checkpoint is written, a host
  dies      it is killed;
  returns   it stands still for a while, and continues;
  hangs     it stands still, until whoever watches it kills it;
  ends      it gets SIGTERM;
or the whole slice is taken away. All are started again as long as they end with status 75. What runs them
waits until the others end, too; it kills those that still wait for a host that never came. A run that comes
to its end before all rounds are done is followed by another, disturbed-1 and so on. All processes are forked
from this one, which has imported everything and computed nothing.

With --bucket, the disturbed runs read records from and write checkpoints to gs://bucket, a stand-in that is
slow and fails every tenth request. Its objects are in FOLDER/objects.
"""

import itertools
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from etils import epath

from tests.helpers import fake_bucket
from tests.helpers.training.alone import cluster_of
from tests.helpers.training.killing import checkpoint_files, make_data, start
from tests.helpers.training.worker import settings
from xlnet_tf import ownership
from xlnet_tf.errors import Interrupted
from xlnet_tf.tasks.pretraining import task as pretraining

HOSTS = 2
EVENTS = ["dies", "returns", "hangs", "ends", "taken"]
SIGNALS = {
    "dies": signal.SIGKILL, "returns": signal.SIGCONT, "hangs": signal.SIGKILL, "ends": signal.SIGTERM,
}  # fmt: skip
SETTINGS = {
    "task": {"model": {"dropout": 0.1, "attention_dropout": 0.1}},
    "trainer": {"train_steps": 24, "steps_per_loop": 1, "checkpoint_interval": 2, "validation_interval": 12},
    "runtime": {"deterministic": True},
}
LEFT_SECONDS = 25.0  # that the other hosts may take to notice that one is gone


def train(config: str, source: str, model_dir: str):
    """Trains to the end, as one of the hosts that a TF_CONFIG lists."""
    os.environ["TF_CONFIG"] = config
    # A killed owner's lease in a bucket ends soon.
    ownership.BEAT_SECONDS, ownership.LEASE_SECONDS, ownership._SETTLE_SECONDS = 0.5, 4.0, 0.1
    params = settings(epath.Path(source), "multi_worker_mirrored")
    params.override(SETTINGS)
    pretraining.pretrain(params, model_dir)


class Slice:
    """The processes of one start of a run: one for each host."""

    def __init__(self, folder: pathlib.Path, source: str, model_dir: str):
        self.statuses: dict[int, int] = {}
        configs = enumerate(cluster_of(HOSTS))
        # host -> process
        self.running = {host: start(folder, train, config, source, model_dir) for host, config in configs}

    def send(self, host: int, number: int):
        """Sends a signal to a host that still runs."""
        self.poll()
        if host in self.running:
            os.kill(self.running[host], number)

    def poll(self) -> bool:
        """Returns whether all hosts have ended."""
        for host, process in list(self.running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del self.running[host]
                self.statuses[host] = os.waitstatus_to_exitcode(status)
        return not self.running

    def end(self):
        """Kills all hosts."""
        for host in list(self.running):
            self.send(host, signal.SIGKILL)
        while not self.poll():
            time.sleep(0.02)


class Hosts:
    """A slice that is started again until its training has ended, and what happens to it.

    Args:
        source: has the records; "gs://bucket" or a folder.
        seen: folder in which the run's files appear.
        events: that are still to come; taken from its end.
        longest: seconds in which an event comes.
    """

    def __init__(self, folder, source: str, model_dir: str, seen: pathlib.Path, rng, events, longest: float):
        self.folder, self.source, self.model_dir, self.seen = folder, source, model_dir, seen
        self.rng, self.events, self.longest = rng, events, longest
        self.slice, self.due = None, None

    def run(self):
        """Trains to the end, as the jobs of deploy/ do: status 75 means to start again."""
        status = Interrupted.EXIT_STATUS
        while status == Interrupted.EXIT_STATUS:
            self.slice, left = Slice(self.folder, self.source, self.model_dir), None
            self.plan()
            while not self.slice.poll():
                self.disturb()
                if self.slice.statuses:  # the others notice that one is gone, or are killed
                    left = left or time.monotonic() + LEFT_SECONDS
                    if time.monotonic() > left:
                        self.slice.end()
                time.sleep(0.001)
            statuses = set(self.slice.statuses.values())
            # SIGTERM by itself ends a host that has not set up anything yet.
            if statuses - {0, Interrupted.EXIT_STATUS, -signal.SIGKILL, -signal.SIGTERM}:
                sys.exit(f"hosts ended with {statuses}: see the log")
            status = 0 if statuses == {0} else Interrupted.EXIT_STATUS

    def plan(self):
        """Chooses the moment of the next event: seconds from now, or when a checkpoint is written."""
        while_saving = not self.events or self.rng.random() < 0.5
        self.due = None if while_saving else time.monotonic() + self.rng.uniform(0, self.longest)
        self.before = checkpoint_files(self.seen)

    def disturb(self):
        """Lets the next event happen if its moment has come and none has happened since the start."""
        if not self.events or self.slice.poll() or self.slice.statuses:
            return
        while_saving = self.due is None
        if while_saving:
            if not checkpoint_files(self.seen) - self.before:
                return
            time.sleep(self.rng.choice([0, 0, 0.001, 0.003, 0.01]))
        elif time.monotonic() < self.due:
            return
        event, host = self.events.pop(), self.rng.randrange(HOSTS)
        if event in ("returns", "hangs"):
            self.slice.send(host, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.5, 3))
        if event == "taken":
            self.slice.end()
        else:
            self.slice.send(host, SIGNALS[event])
        saved = sorted(name for name in checkpoint_files(self.seen) if name.endswith(".index"))
        moment = "while saving" if while_saving else ""
        print(self.seen.name, f"host {host} {event}", moment, *saved, flush=True)
        if event == "returns":
            self.plan()
        else:
            self.due = math.inf  # no other until all were started again


def main(folder: pathlib.Path, rounds: int, source: str):
    make_data(folder, "one")
    begun = time.monotonic()
    Hosts(folder, str(folder), str(folder / "undisturbed"), folder / "undisturbed", None, [], 0).run()
    rng, events = random.Random(0), ((EVENTS * rounds)[:rounds])[::-1]
    longest = time.monotonic() - begun
    seen = folder / "objects" / "bucket" if "://" in source else folder
    for name in ("records", "dev") if "://" in source else ():
        shutil.copytree(folder / name, seen / name)
    for run in itertools.count():
        name = f"disturbed-{run}"
        Hosts(folder, source, f"{source}/{name}", seen / name, rng, events, longest).run()
        if not events:
            break


def main_in_bucket(folder: pathlib.Path, rounds: int):
    """Runs `main` in a process whose gs:// is a bucket that this one plays."""
    objects = fake_bucket.FolderObjects(folder / "objects")
    with fake_bucket.serving(folder, objects=objects, seconds=0.002, failing=0.1) as bucket:
        program = ["-m", "tests.helpers.training.rehearsal", str(folder), str(rounds), "gs://bucket"]
        status = subprocess.run([sys.executable, *program], env=os.environ | bucket.environment).returncode
        print(f"{len(bucket.requests):,} requests, {bucket.failures:,} of them failed")
    sys.exit(status)


if __name__ == "__main__":
    folder, rounds, *where = sys.argv[1:]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    if where == ["--bucket"]:
        main_in_bucket(pathlib.Path(folder), int(rounds))
    main(pathlib.Path(folder), int(rounds), *(where or [folder]))

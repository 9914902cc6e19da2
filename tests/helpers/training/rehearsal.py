"""A slice of several hosts, rehearsed on one: hosts die, hang and return while they train; see test_hosts.py.

    python -m tests.helpers.training.rehearsal FOLDER ROUNDS

leaves the runs FOLDER/undisturbed and FOLDER/disturbed-0, and prints a line for each round. In each, at a
random moment or while a checkpoint is written, a host
  dies      it is killed;
  returns   it stands still for a while, and continues;
  hangs     it stands still, until whoever watches it kills it;
  ends      it is told to (SIGTERM).
The launcher waits until the others end, too; it kills those that still wait for a host that never came. Then
it starts all again. A run that comes to its end
before all rounds are done is followed by another, disturbed-1 and so on. All processes are forked from this
one, which has imported everything and computed nothing.
"""

import contextlib
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import sys
import time
import traceback

from tests.helpers.training.killing import checkpoint_files, make_data
from tests.helpers.training.worker import settings
from xlnet_tf.errors import Interrupted
from xlnet_tf.tasks import pretraining

HOSTS = 2
EVENTS = ("dies", "returns", "hangs", "ends")
SETTINGS = {
    "task": {"model": {"dropout": 0.1, "attention_dropout": 0.1}},
    "trainer": {"train_steps": 24, "steps_per_loop": 1, "checkpoint_interval": 2, "validation_interval": 12},
    "runtime": {"deterministic": True},
}
RUN_SECONDS = 300.0  # that a run may take
LEFT_SECONDS = 25.0  # that the other hosts may take to notice that one is gone


def train(folder: pathlib.Path, model_dir: pathlib.Path):
    """Trains to the end, as one of the hosts that TF_CONFIG lists."""
    params = settings(folder, "multi_worker_mirrored")
    params.override(SETTINGS)
    pretraining.pretrain(params, str(model_dir))


class Slice:
    """The processes of one start of a run: one for each host."""

    def __init__(self, folder: pathlib.Path, model_dir: pathlib.Path):
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(HOSTS)]
            for one in sockets:
                one.bind(("localhost", 0))
            workers = [f"localhost:{one.getsockname()[1]}" for one in sockets]
        self.running: dict[int, int] = {}  # host -> process
        self.statuses: dict[int, int] = {}
        for host in range(HOSTS):
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": host}}
            self.running[host] = os.fork()
            if not self.running[host]:
                os.environ["TF_CONFIG"] = json.dumps(config)
                self._train(folder, model_dir)

    def _train(self, folder: pathlib.Path, model_dir: pathlib.Path):
        status = 1
        try:
            log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            train(folder, model_dir)
            status = 0
        except Interrupted as error:
            print(f"INTERRUPTED: {error}", file=sys.stderr)
            status = error.EXIT_STATUS
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

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

    def wait(self):
        """Returns when all hosts have ended."""
        deadline, left = time.monotonic() + RUN_SECONDS, None
        while not self.poll():
            now = time.monotonic()
            left = left or (now + LEFT_SECONDS if self.statuses else None)
            if left and now > left:
                for host in list(self.running):
                    self.send(host, signal.SIGKILL)
            if now > deadline:
                raise RuntimeError(f"hosts {sorted(self.running)} have not ended: see the log")
            time.sleep(0.05)
        if unexpected := set(self.statuses.values()) - {0, Interrupted.EXIT_STATUS, -signal.SIGKILL}:
            raise RuntimeError(f"hosts ended with {unexpected}: see the log")


def disturb(hosts: Slice, model_dir: pathlib.Path, rng: random.Random, event: str, longest: float) -> bool:
    """Lets something happen to a host; False if the run had ended before."""
    while_saving = rng.random() < 0.5
    before = checkpoint_files(model_dir)
    deadline = time.monotonic() + (3600 if while_saving else rng.uniform(0, longest))
    while time.monotonic() < deadline:
        if hosts.poll():
            return False
        if while_saving and checkpoint_files(model_dir) - before:
            time.sleep(rng.choice([0, 0, 0.001, 0.003, 0.01]))
            break
        time.sleep(0.0005 if while_saving else 0.02)
    host = rng.randrange(HOSTS)
    if event in ("returns", "hangs"):
        hosts.send(host, signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 3))
    ending = {
        "dies": signal.SIGKILL,
        "returns": signal.SIGCONT,
        "hangs": signal.SIGKILL,
        "ends": signal.SIGTERM,
    }
    hosts.send(host, ending[event])
    saved = sorted(name for name in checkpoint_files(model_dir) if name.endswith(".index"))
    print(model_dir.name, f"host {host} {event}", "while saving" if while_saving else "", *saved, flush=True)
    return True


def main(folder: pathlib.Path, rounds: int):
    make_data(folder, "one")
    begun = time.monotonic()
    Slice(folder, folder / "undisturbed").wait()
    longest = time.monotonic() - begun
    rng = random.Random(0)
    events = (EVENTS * rounds)[:rounds]
    for run in itertools.count():
        model_dir = folder / f"disturbed-{run}"
        statuses = {}
        while set(statuses.values()) != {0}:
            hosts = Slice(folder, model_dir)
            while events and disturb(hosts, model_dir, rng, events[0], longest):
                event, *events = events
                if event != "returns":
                    break
            hosts.wait()
            statuses = hosts.statuses
        if not events:
            break


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))

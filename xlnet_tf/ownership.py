"""Lets only one process at a time write into a folder: by a lock where the disk has one, and by a lease.

The lock is the operating system's, on the folder itself: it ends with the process in any case, but other
machines do not see it. The lease is a file that names its owner and changes as long as the owner lives. It
works for everyone who sees the folder: on gs://, and on disks that several machines share.
"""

import contextlib
import datetime
import fcntl
import json
import math
import os
import pathlib
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from etils import epath

from xlnet_tf import files
from xlnet_tf.errors import UserError

FILE = "owner.json"
BEAT_SECONDS = 15.0
# A lease that has not changed for eight beats belongs to a killed process: a compiler that holds Python's
# lock and a bucket that must be asked again take less, and a new machine instead of a preempted one is
# seldom ready earlier. The waiting process measures the time, as clocks of machines differ.
LEASE_SECONDS = 8 * BEAT_SECONDS
# If two processes find no lease and write theirs at the same time, the second to write is the owner. The
# first notices because it reads its lease again after this time; writing a small object takes less.
_SETTLE_SECONDS = 2.0
_POLL_SECONDS = 1.0


class Ownership:
    """The right to write into a folder; see `folder_lease`, which has the same arguments."""

    def __init__(self, folder: epath.Path, what: str, clock: Any):
        self._path = folder / FILE
        self._clock = clock
        self._beats = 0
        self._lease = {
            "what": what,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
            "kernel": _kernel(),
            "token": secrets.token_hex(8),
        }
        self._taken_by: dict[str, Any] | None = None
        self._renewing = threading.Lock()
        self._renewed = -math.inf

    def check(self) -> None:
        """Raises UserError if another process has taken the folder over; call it before each write.

        That can happen if this process or its machine stood still for longer than a lease is valid.
        """
        if self._clock.monotonic() - self._renewed > 2 * BEAT_SECONDS:
            with contextlib.suppress(Exception):  # if the file system does not answer, writing will fail, too
                self.renew()
        if self._taken_by:
            raise UserError(
                f"{self._path.parent} was taken over by {describe(self._taken_by)}, as this process had not "
                f"renewed {FILE} for {LEASE_SECONDS:.0f} s: this process ends and writes nothing more"
            )

    def beat(self) -> None:
        if self._beats:
            self.renew()

    def renew(self) -> None:
        """Renews the lease, unless another process has taken the folder over."""
        with self._renewing:
            there = _read(self._path)
            if there and not self._is_mine(there):
                self._taken_by = there
            elif not self._taken_by:
                self._beats += 1
                files.write(self._path, json.dumps(self._lease | {"beat": self._beats}))
                self._renewed = self._clock.monotonic()

    def take(self, locked: bool, at_once: bool) -> None:
        """Writes the first lease, unless another process owns the folder.

        `locked` is whether this process has the folder's lock; for `at_once` see `folder_lease`.
        """
        there = _read(self._path)
        # A living owner on this machine would hold the lock.
        if there and not (locked and there.get("kernel") == self._lease["kernel"]):
            self._await_end_of(there)
        if there:
            self._path.unlink(missing_ok=True)
        if locked and not at_once:
            return
        self.renew()
        if not locked:
            self._clock.sleep(_SETTLE_SECONDS)
        there = _read(self._path)
        if there and not self._is_mine(there):
            raise _Occupied(there)

    def release(self) -> None:
        """Removes this process's lease, and unfinished writes of killed owners."""
        with self._renewing:
            if self._is_mine(_read(self._path) or {}):
                for unfinished in files.beginning_with(f"{self._path}.tmp"):
                    epath.Path(unfinished).unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)

    def _is_mine(self, lease: dict[str, Any]) -> bool:
        return lease.get("token") == self._lease["token"]

    def _await_end_of(self, there: dict[str, Any]) -> None:
        """Returns when the lease has expired or is gone; raises _Occupied if it changes."""
        print(
            f"{self._path.parent} was in use by {describe(there)}: waiting up to {LEASE_SECONDS:.0f} s to "
            "see whether it still is",
            file=sys.stderr,
        )
        begun = self._clock.monotonic()
        while self._clock.monotonic() - begun < LEASE_SECONDS:
            self._clock.sleep(_POLL_SECONDS)
            if (now := _read(self._path)) != there:
                if now:
                    raise _Occupied(now)
                return


@contextlib.contextmanager
def folder_lease(
    folder: epath.PathLike, what: str, flag: str, clock: Any = time, at_once: bool = True
) -> Iterator[Ownership]:
    """Keeps other processes out of a folder while the block runs; a UserError names one at work there.

    A killed process leaves its lease. On the same machine, and a disk with locks, the folder is free at once;
    elsewhere when the lease has not changed for LEASE_SECONDS, which this function waits for. Unfinished
    files are removed.

    Args:
        what: the activity, for messages to others: "training"; `flag` chooses the folder.
        clock: has monotonic() and sleep(seconds).
        at_once: whether to write the lease now. If not, and this process has the folder's lock, the first
            `check` writes it: a folder that turns out to need nothing is left unchanged.
    """
    folder = epath.Path(folder)
    ended = threading.Event()
    owner = Ownership(folder, what, clock)

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with contextlib.suppress(Exception):  # the file system may answer the next time
                owner.beat()

    with contextlib.ExitStack() as stack:
        try:
            owner.take(_lock(folder, stack), at_once)
        except _Occupied as error:
            raise UserError(
                f"{folder} is in use by {describe(error.lease)}: wait for its end, or choose another {flag}"
            ) from None
        stack.callback(owner.release)
        files.remove_unfinished(folder, kept=FILE)
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield owner


class _Occupied(Exception):
    def __init__(self, lease: dict[str, Any]):
        self.lease = lease


def _lock(folder: epath.Path, stack: contextlib.ExitStack) -> bool:
    """Locks a folder until the stack ends; False if its file system has no locks."""
    if "://" in os.fspath(folder):
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _Occupied(_read(folder / FILE) or {}) from None
    except OSError:  # NFS, for example
        return False
    return True


def _read(path: epath.Path) -> dict[str, Any] | None:
    """Returns a lease; None if there is none. An unreadable one counts as that of an unknown owner."""
    try:
        text = path.read_text()
    except Exception:  # each file system has its own
        if path.exists():
            raise
        return None
    try:
        lease = json.loads(text)
    except ValueError:
        lease = None
    return lease if isinstance(lease, dict) else {"text": text}


def describe(lease: dict[str, Any]) -> str:
    """Returns a lease's owner, for messages."""
    if "pid" not in lease:
        return "another process"
    return "process {pid} on {host} ({what}, started {started})".format_map(
        {"host": "?", "what": "?", "started": "?"} | lease
    )


def _kernel() -> str:
    """Returns an id of the running kernel, which keeps the locks; host names may be equal."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()

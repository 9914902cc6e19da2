"""Runs a build's jobs, wherever they are to run.

A job is a value that says all that its function needs; its files are the same whoever runs it, and when.
"""

import collections
import concurrent.futures
import dataclasses
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

from absl import logging
from etils import epath

from xlnet_tf import errors, signals
from xlnet_tf.errors import UserError

RUNNERS = ("local", "beam")
MAX_TRIES = 3  # of a job whose worker dies

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_jobs(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    runner: str = "local",
    num_workers: int = 1,
    beam_options: str = "",
    scratch: epath.PathLike = "",
) -> Iterator[tuple[Job, Result]]:
    """Runs a function over jobs, on this machine or where Apache Beam takes them.

    Args:
        function: importable by name, as other processes will import it; returns a value of json's types. It
            may be run more than once on a job, and at the same time.
        jobs: what to run it on, picklable; taken as needed, so that memory holds a few of them only.
        runner: "local", or "beam".
        num_workers: local processes; 1 runs all jobs in this one.
        beam_options: Beam's own options, as on a command line.
        scratch: folder where Beam's workers leave results; this process and all of them reach it.

    Yields:
        (job, result), in the order in which they end.

    Raises:
        UserError: workers died, again and again, or Beam is not installed or failed. What the function raises
            is raised here, too.
    """
    if runner == "beam":
        try:
            from tfrecord_builders.common import beam_runner
        except ImportError as error:
            raise UserError(
                f'--runner=beam needs Apache Beam ({error}): pip install "xlnet-tf[beam]"'
            ) from None
        yield from beam_runner.run_jobs(function, jobs, beam_options, scratch)
    elif num_workers == 1:
        for job in jobs:
            yield job, run_job(function, job)
    else:
        yield from _run_in_processes(function, jobs, num_workers)


def run_job(function: Callable[[Job], Result], job: Job) -> Result:
    """Runs a function on a job; an error of a remote file system becomes a UserError."""
    with errors.of_file_systems():
        return function(job)


@dataclasses.dataclass(frozen=True)
class _Try(Generic[Job]):
    """A job that is run for the `number`-th time."""

    job: Job
    number: int = 1


def _run_in_processes(
    function: Callable[[Job], Result], jobs: Iterable[Job], num_workers: int
) -> Iterator[tuple[Job, Result]]:
    """Runs jobs in processes; those that a dead process took with it are run again."""
    new = (_Try(job) for job in jobs)
    again: collections.deque[_Try] = collections.deque()
    running: dict[concurrent.futures.Future, _Try] = {}
    others = set(multiprocessing.active_children())
    pool = _new_pool(num_workers)
    try:
        while True:
            # Memory holds this many jobs at most.
            while len(running) <= 2 * num_workers:
                one = again.popleft() if again else next(new, None)
                if one is None:
                    break
                running[signals.blocked(_submit, pool, function, one.job)] = one
            if not running:
                return
            lost = []
            for future in concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            ).done:
                one = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    lost.append(one)
                else:
                    yield one.job, future.result()
            if lost:
                # One dead process breaks the pool: the other jobs have ended, or never will.
                concurrent.futures.wait(running)
                broken = [f for f in running if isinstance(f.exception(), BrokenProcessPool)]
                lost += [running.pop(future) for future in broken]
                _check_tries(lost, num_workers)
                again.extend(_Try(one.job, one.number + 1) for one in lost)
                pool.shutdown()
                pool = _new_pool(num_workers)
    except (KeyboardInterrupt, GeneratorExit):  # nobody waits for what runs now
        signals.end_processes(others)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _new_pool(num_workers: int) -> concurrent.futures.ProcessPoolExecutor:
    # Not fork: the caller may have threads (TensorFlow has).
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(num_workers, context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Ends this process as soon as the one that started it has ended, even by kill -9.

    A worker that lived on would wait for ever, and could still write into a folder that another build has
    begun to use.
    """
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _submit(pool, function, job) -> concurrent.futures.Future:
    """Hands a job to the pool; if the pool is broken, its future says so as those before it do."""
    try:
        return pool.submit(run_job, function, job)
    except BrokenProcessPool as error:
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_exception(error)
        return future


def _check_tries(lost: list[_Try], num_workers: int) -> None:
    """Warns of jobs that must be run again; raises UserError if one has been tried often enough."""
    reason = "a worker process died (was memory short, or was it killed?)"
    if max(one.number for one in lost) >= MAX_TRIES:
        raise UserError(
            f"{reason}, {MAX_TRIES} times with the same job: start again with the same flags, "
            f"finished shards are kept; less memory is needed with fewer --num_workers (now {num_workers})"
        )
    logging.warning("%s: %d jobs are run again", reason, len(lost))

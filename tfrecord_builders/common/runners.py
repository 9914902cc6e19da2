"""Runs a build's jobs, wherever they are to run.

A job is a value that says all that its function needs; its files are the same whoever runs it, and when.
"""

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from absl import logging
from etils import epath

from xlnet_tf import errors, signals
from xlnet_tf.errors import UserError, install_command
from xlnet_tf.flags import option

RUNNERS = ("local", "beam")
MAX_TRIES = 3  # of a job whose worker dies
_DIED = "a worker process died (was memory short, or was it killed?)"

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """Where jobs run; each field is a flag."""

    runner: str = option(
        "where the jobs run: processes of this machine, or Apache Beam (the extra beam)",
        "local",
        choices=RUNNERS,
    )
    num_workers: int | None = option(
        "processes of --runner=local; each loads what it needs, such as a model. Default: the cores of this "
        "machine",
        None,
        least=1,
        most=1024,
    )
    beam_options: str = option(
        "Beam's own options, as on a command line: '--runner=DataflowRunner --project=...' "
        "(see docs/how-to/beam.md)",
        "",
    )

    def check_runner(self) -> None:
        """Raises UserError if the options of one runner are given for another."""
        if self.beam_options and self.runner != "beam":
            raise UserError(f"beam_options are for runner beam (now {self.runner})")


def threads_of_machine() -> int:
    """Returns how many of its cores this process may use."""
    return len(os.sched_getaffinity(0))


def run_jobs(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    runner: str = "local",
    num_workers: int = 1,
    beam_options: str = "",
    scratch: epath.PathLike = "",
    after_death: Callable[[Job], Job] | None = None,
) -> Iterator[tuple[Job, Result]]:
    """Runs a function over jobs, on this machine or where Apache Beam takes them.

    Args:
        function: importable by name, as other processes will import it, or a partial of such a one; returns a
            value of json's types. It may be run more than once on a job, and at the same time.
        jobs: what to run it on, picklable; taken as needed, so that memory holds a few of them only.
        runner: "local", or "beam".
        num_workers: local processes; 1 runs all jobs in this one.
        beam_options: Beam's own options, as on a command line.
        scratch: folder where Beam's workers leave results; this process and all of them reach it.
        after_death: what to run instead of a job whose local process has died, as often as one does; None:
            the same job, up to `MAX_TRIES` times.

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
            raise UserError(f"--runner=beam needs Apache Beam ({error}): {install_command('beam')}") from None
        yield from beam_runner.run_jobs(function, jobs, beam_options, scratch)
    elif num_workers == 1:
        for job in jobs:
            yield job, run_job(function, job)
    else:
        yield from _run_in_processes(function, jobs, num_workers, after_death)


def run_job(function: Callable[[Job], Result], job: Job) -> Result:
    """Runs a function on a job; an error of a remote file system becomes a UserError."""
    with errors.of_file_systems():
        return function(job)


def _run_in_processes(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    num_workers: int,
    after_death: Callable[[Job], Job] | None,
) -> Iterator[tuple[Job, Result]]:
    """Runs jobs in processes; those that a dead process took with it are run again, each in its own."""
    waiting = iter(jobs)
    running: dict[concurrent.futures.Future, Job] = {}
    others = set(multiprocessing.active_children())
    pool = _new_pool(num_workers)
    try:
        while True:
            # Memory holds this many jobs at most.
            for job in itertools.islice(waiting, 2 * num_workers + 1 - len(running)):
                running[signals.blocked(_submit, pool, function, job)] = job
            if not running:
                return
            lost = []
            for future in concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            ).done:
                job = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    lost.append(job)
                else:
                    yield job, future.result()
            if lost:
                # One dead process breaks the pool: the other jobs have ended, or never will.
                concurrent.futures.wait(running)
                broken = [f for f in running if isinstance(f.exception(), BrokenProcessPool)]
                lost += [running.pop(future) for future in broken]
                pool.shutdown()
                logging.warning("%s: %d jobs are run again, one by one", _DIED, len(lost))
                for job in lost:
                    yield job, _run_alone(function, job, num_workers, after_death)
                pool = _new_pool(num_workers)
    except (KeyboardInterrupt, GeneratorExit):  # nobody waits for what runs now
        signals.end_processes(others)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _run_alone(
    function: Callable[[Job], Result],
    job: Job,
    num_workers: int,
    after_death: Callable[[Job], Job] | None,
) -> Result:
    """Runs a job whose process may have died in one of its own: if that dies too, it is the job's fault."""
    for number in itertools.count(2):
        job = after_death(job) if after_death else job
        pool = _new_pool(1)
        try:
            future = signals.blocked(_submit, pool, function, job)
            if not isinstance(future.exception(), BrokenProcessPool):
                return future.result()
        finally:
            pool.shutdown(wait=False)  # after Ctrl-C nobody waits for the job
        if not after_death and number >= MAX_TRIES:
            raise UserError(
                f"{_DIED}, {MAX_TRIES} times with the same job: start again with the same flags, finished "
                f"shards are kept; less memory is needed with fewer --num_workers (now {num_workers})"
            )
    raise AssertionError("unreachable")


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

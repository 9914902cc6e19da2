"""Runs a build's jobs, locally or on Beam.

A job is a value with all that its function needs; it gives the same files wherever and whenever it runs.
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import resource
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from absl import logging
from etils import epath

from xlnet_tf import errors
from xlnet_tf.cli import signals
from xlnet_tf.errors import UserError, install_command
from xlnet_tf.flags import option

RUNNERS = ("local", "beam")
MAX_TRIES = 3  # of a job whose worker dies
_FILES_OF_WORKER = 8  # that this process has open for it
_DIED = "a worker process died (was memory short, or was it killed?)"

Job = TypeVar("Job")
Result = TypeVar("Result")
_Pool = concurrent.futures.ProcessPoolExecutor


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
        if self.beam_options and self.runner != "beam":
            raise UserError(f"beam_options are for runner beam (now {self.runner})")


def threads_of_machine() -> int:
    """Returns how many cores this process may use."""
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
    """Yields (job, result) of a function, run on this machine or on Apache Beam, as the jobs end.

    Args:
        function: importable in other processes; returns json's types. It may run more than once on a job.
        jobs: picklable; consumed as needed, so that memory holds only a few of them.
        num_workers: local processes; 1 runs all jobs in this one.
        scratch: folder where Beam's workers leave results; this process and all of them can access it.
        after_death: from a job whose local process has died to the one to run next, as often as one dies;
            None: the same job, up to `MAX_TRIES` times.

    Raises UserError if workers died repeatedly, or Beam is not installed or failed. Errors of the function
    are raised here, too.
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
    """Runs a function on a job; converts errors of remote file systems to UserError."""
    with errors.tf_errors_as_user_errors():
        return function(job)


def _run_in_processes(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    num_workers: int,
    after_death: Callable[[Job], Job] | None,
) -> Iterator[tuple[Job, Result]]:
    """Runs jobs in processes, each a pool of its own, so that one that dies affects no other's job.

    A dead process' job is rerun at once, then once no other job runs, as memory may be short.
    """
    waiting = iter(jobs)
    running: dict[concurrent.futures.Future, tuple[_Pool, Job, int]] = {}
    put_off: list[tuple[Job, int]] = []
    others = set(multiprocessing.active_children())
    pools = {_new_pool() for _ in range(num_workers)}

    def start(pool: _Pool, job: Job, number: int) -> None:
        running[signals.blocked(_submit, pool, function, job)] = pool, job, number

    _allow_files(_FILES_OF_WORKER * num_workers)
    try:
        for pool, job in zip(pools, waiting):
            start(pool, job, 1)
        while running or put_off:
            if not running:
                start(next(iter(pools)), *put_off.pop())
            ended = []
            for future in concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            ).done:
                pool, job, number = running.pop(future)
                if not isinstance(future.exception(), BrokenProcessPool):
                    ended.append((job, future))
                else:
                    pool.shutdown()
                    pools.remove(pool)
                    pools.add(pool := _new_pool())
                    if number >= MAX_TRIES and not after_death:
                        raise _died_too_often(num_workers)
                    logging.warning("%s: its job is run again", _DIED)
                    again = after_death(job) if after_death else job
                    if number == 1:
                        start(pool, again, 2)
                        continue
                    put_off.append((again, number + 1))
                for following in itertools.islice(waiting, 1):
                    start(pool, following, 1)
            for job, future in ended:
                yield job, future.result()
    except (KeyboardInterrupt, GeneratorExit):  # nobody waits for what runs now
        signals.end_processes(others)
        raise
    finally:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in pools:
            pool.shutdown()


def _died_too_often(num_workers: int) -> UserError:
    return UserError(
        f"{_DIED}, {MAX_TRIES} times with the same job: start again with the same flags, finished shards are "
        f"kept; less memory is needed with fewer --num_workers (now {num_workers})"
    )


def _allow_files(number: int) -> None:
    """Raises this process's limit of open files by a number, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + number
    with contextlib.suppress(ValueError, OSError):  # there is no limit, or no more to have
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


def _new_pool() -> _Pool:
    # Not fork: the caller may have threads (TensorFlow has).
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(1, context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Ends this process with its parent, even after kill -9; an orphan could harm another build's folder."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _submit(pool: _Pool, function, job) -> concurrent.futures.Future:
    """Submits a job to a pool; if its process has died meanwhile, the future says so."""
    try:
        return pool.submit(run_job, function, job)
    except BrokenProcessPool as error:
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_exception(error)
        return future

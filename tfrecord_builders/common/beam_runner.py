"""Runs jobs on Apache Beam: in processes of this machine, on Dataflow, Flink or Spark.

The pipeline itself carries only numbers. Jobs and results are files in a scratch folder, which the workers of
any runner can access, as they also write records there; so nothing depends on what a runner returns.
"""

import concurrent.futures
import contextlib
import json
import pickle
import secrets
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult
from etils import epath

from xlnet_tf import errors, files
from xlnet_tf.errors import UserError

BLOCK_BYTES = 1 << 24  # of jobs in one file: thousands of small ones, or a few with their text
POLL_SECONDS = 5.0

Job = TypeVar("Job")


class Location(NamedTuple):
    """Location of a job in the scratch folder."""

    number: int  # of the job, from 0
    block: int  # number of the file
    start: int  # first byte
    num_bytes: int  # of the pickled job


class RunJob(beam.DoFn):
    """Runs a function on a job; leaves its result or its error in the scratch folder."""

    def __init__(self, function: Callable[[Any], Any], scratch: str):
        self._function = function
        self._scratch = scratch

    def process(self, location: tuple[int, int, int, int]) -> None:
        scratch, location = epath.Path(self._scratch), Location(*location)
        try:
            with errors.tf_errors_as_user_errors():
                result = self._function(_read_job(scratch, location))
        except (UserError, OSError) as error:
            with contextlib.suppress(UserError, OSError):  # such as a full disk, which the error is about
                files.write(scratch / f"{location.number}.error", str(error))
            raise
        files.write(_result_path(scratch, location), json.dumps(result))


def run_jobs(
    function: Callable[[Job], Any], jobs: Iterable[Job], beam_options: str, scratch: epath.PathLike
) -> Iterator[tuple[Job, Any]]:
    """See `runners.run_jobs`; results are in the order of the jobs, early if Beam's runner does not block."""
    pipeline = _new_pipeline(beam_options)
    folder = files.make_folder(epath.Path(scratch) / secrets.token_hex(8))
    try:
        locations = _write_jobs(folder, jobs)
        _ = (
            pipeline
            | "Jobs" >> beam.Create([tuple(location) for location in locations], reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Run" >> beam.ParDo(RunJob(function, str(folder)))
        )
        waiting = iter(locations)
        location = next(waiting, None)
        with contextlib.closing(_watch(pipeline, folder)) as looks:
            for there in looks:
                while location is not None and _result_path(folder, location).name in there:
                    result = json.loads(_result_path(folder, location).read_text())
                    yield _read_job(folder, location), result
                    location = next(waiting, None)
        if location is not None:
            raise UserError(
                f"the Beam pipeline ended without the result of job {location.number}. Do its workers reach "
                f"{folder.parent}? Start again with the same flags, finished shards are kept"
            )
    finally:
        folder.rmtree(missing_ok=True)


def _new_pipeline(beam_options: str) -> beam.Pipeline:
    try:
        options = PipelineOptions(shlex.split(beam_options))
        pipeline = beam.Pipeline(options=options)
        options.get_all_options(display_warnings=True)  # what is wrong shows now, not after the planning
        return pipeline
    except SystemExit:
        raise UserError(f"Beam does not take --beam_options={beam_options!r}: see its words above") from None
    except Exception as error:
        raise UserError(f"Beam does not take --beam_options={beam_options!r}: {error}") from None


def _watch(pipeline: beam.Pipeline, folder: epath.Path) -> Iterator[set[str]]:
    """Runs a pipeline; yields the names of a folder's files regularly. The first failed job is the error."""
    running: PipelineResult | None = None
    waiting: concurrent.futures.Future = concurrent.futures.Future()

    def wait() -> None:
        try:
            waiting.set_result(running.wait_until_finish())
        except Exception as error:
            waiting.set_exception(error)

    try:
        running = pipeline.run()
        # In a thread: not all runners say by themselves that a pipeline has ended.
        threading.Thread(target=wait, daemon=True).start()
        while not concurrent.futures.wait([waiting], POLL_SECONDS).done:
            yield _names(folder)
        waiting.result()
    except Exception as error:
        failed = sorted(name for name in _names(folder) if name.endswith(".error"))
        if failed:
            raise UserError((folder / failed[0]).read_text()) from None
        raise UserError(
            f"the Beam pipeline failed: {error}. Start again with the same flags, finished shards are kept"
        ) from error
    except BaseException:
        if running is not None:
            with contextlib.suppress(Exception):  # not all runners can
                running.cancel()
        raise
    yield _names(folder)


def _write_jobs(folder: epath.Path, jobs: Iterable[Any]) -> list[Location]:
    locations: list[Location] = []
    blocks, block = 0, bytearray()
    for number, job in enumerate(jobs):
        pickled = pickle.dumps(job)
        locations.append(Location(number, blocks, len(block), len(pickled)))
        block += pickled
        if len(block) >= BLOCK_BYTES:
            files.write(_block_path(folder, blocks), bytes(block))
            blocks, block = blocks + 1, bytearray()
    files.write(_block_path(folder, blocks), bytes(block))
    return locations


def _read_job(folder: epath.Path, location: Location) -> Any:
    with _block_path(folder, location.block).open("rb") as file:
        file.seek(location.start)
        return pickle.loads(file.read(location.num_bytes))


def _block_path(folder: epath.Path, number: int) -> epath.Path:
    return folder / f"{number}.jobs"


def _result_path(folder: epath.Path, location: Location) -> epath.Path:
    return folder / f"{location.number}.result"


def _names(folder: epath.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}

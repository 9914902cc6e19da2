"""Runs units of work on Apache Beam: in processes of this machine, on Dataflow, Flink or Spark.

The pipeline itself carries numbers only. Units and results are files in a scratch folder, which the workers
of any runner reach, for they write records beside it; nothing depends on what a runner hands back.
"""

import contextlib
import json
import pickle
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState
from etils import epath

from xlnet_tf import errors, files
from xlnet_tf.errors import UserError

BLOCK_BYTES = 1 << 24  # of units in one file: thousands of small ones, or a few with their text
POLL_SECONDS = 5.0

Unit = TypeVar("Unit")


class Place(NamedTuple):
    """Where a unit is in the scratch folder.

    Args:
        number: of the unit, from 0.
        block: number of the file.
        start: first byte.
        num_bytes: length of the pickled unit.
    """

    number: int
    block: int
    start: int
    num_bytes: int


class RunUnit(beam.DoFn):
    """Runs a function on a unit; leaves its result or its error in the scratch folder."""

    def __init__(self, function: Callable[[Any], Any], scratch: str):
        self._function = function
        self._scratch = scratch

    def process(self, place: tuple[int, int, int, int]) -> None:
        scratch, place = epath.Path(self._scratch), Place(*place)
        try:
            with errors.of_file_systems():
                result = self._function(_read_unit(scratch, place))
        except (UserError, OSError) as error:
            files.write(scratch / f"{place.number}.error", str(error))
            raise
        files.write(_result_path(scratch, place), json.dumps(result))


def run_units(
    function: Callable[[Unit], Any], units: Iterable[Unit], beam_options: str, scratch: epath.PathLike
) -> Iterator[tuple[Unit, Any]]:
    """Runs a function over units; see `runners.run_units`.

    Args:
        function: importable by name on the workers; returns a value of json's types.
        units: what to run it on, picklable.
        beam_options: Beam's options, as on a command line.
        scratch: folder that this process and all workers reach; what is written there goes in the end.

    Yields:
        (unit, result), in the order of the units; while the pipeline runs, if its runner does not block.

    Raises:
        UserError: the function raised an error, or the pipeline failed.
    """
    pipeline = _new_pipeline(beam_options)
    folder = files.make_folder(epath.Path(scratch) / secrets.token_hex(8))
    try:
        places = _write_units(folder, units)
        _ = (
            pipeline
            | "Units" >> beam.Create([tuple(place) for place in places], reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Run" >> beam.ParDo(RunUnit(function, str(folder)))
        )
        waiting = iter(places)
        place = next(waiting, None)
        with contextlib.closing(_watch(pipeline, folder)) as looks:
            for there in looks:
                while place is not None and _result_path(folder, place).name in there:
                    result = json.loads(_result_path(folder, place).read_text())
                    yield _read_unit(folder, place), result
                    place = next(waiting, None)
        if place is not None:
            raise UserError(
                f"the Beam pipeline ended without the result of unit {place.number}. Do its workers reach "
                f"{folder.parent}? Start again with the same flags, finished shards are kept"
            )
    finally:
        folder.rmtree(missing_ok=True)


def _new_pipeline(beam_options: str) -> beam.Pipeline:
    try:
        options = PipelineOptions(shlex.split(beam_options))
        options.get_all_options(display_warnings=True)  # what is wrong shows now, not after the planning
        return beam.Pipeline(options=options)
    except SystemExit:
        raise UserError(f"Beam does not take --beam_options={beam_options!r}: see its words above") from None
    except Exception as error:
        raise UserError(f"Beam does not take --beam_options={beam_options!r}: {error}") from None


def _watch(pipeline: beam.Pipeline, folder: epath.Path) -> Iterator[set[str]]:
    """Runs a pipeline; yields the names of the files in a folder now and then, and when it has ended.

    Raises:
        UserError: the pipeline failed; says what the first unit with an error said.
    """
    running: PipelineResult | None = None
    try:
        running = pipeline.run()
        while not PipelineState.is_terminal(running.state):
            time.sleep(POLL_SECONDS)
            yield _names(folder)
        running.wait_until_finish()
    except Exception as error:
        told = sorted(name for name in _names(folder) if name.endswith(".error"))
        if told:
            raise UserError((folder / told[0]).read_text()) from None
        raise UserError(
            f"the Beam pipeline failed: {error}. Start again with the same flags, finished shards are kept"
        ) from error
    except BaseException:
        if running is not None:
            with contextlib.suppress(Exception):  # not all runners can
                running.cancel()
        raise
    yield _names(folder)


def _write_units(folder: epath.Path, units: Iterable[Any]) -> list[Place]:
    """Writes units into blocks and says where they are."""
    places: list[Place] = []
    blocks, block = 0, bytearray()
    for number, unit in enumerate(units):
        pickled = pickle.dumps(unit)
        places.append(Place(number, blocks, len(block), len(pickled)))
        block += pickled
        if len(block) >= BLOCK_BYTES:
            files.write(_block_path(folder, blocks), bytes(block))
            blocks, block = blocks + 1, bytearray()
    files.write(_block_path(folder, blocks), bytes(block))
    return places


def _read_unit(folder: epath.Path, place: Place) -> Any:
    with _block_path(folder, place.block).open("rb") as file:
        file.seek(place.start)
        return pickle.loads(file.read(place.num_bytes))


def _block_path(folder: epath.Path, number: int) -> epath.Path:
    return folder / f"{number}.units"


def _result_path(folder: epath.Path, place: Place) -> epath.Path:
    return folder / f"{place.number}.result"


def _names(folder: epath.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}

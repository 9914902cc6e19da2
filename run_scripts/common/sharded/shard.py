"""One shard: its rows are read, answered in batches of similar length, and written in their own order.

Every run of a job writes the same bytes. A batch that fails is halved until the failing row is alone.
"""

import dataclasses
import functools
import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from etils import epath

from run_scripts.common.answers import json_line, renamed
from run_scripts.common.sharded import formats
from run_scripts.common.sharded.deaths import Deaths
from tfrecord_builders import corpus
from xlnet_tf import files
from xlnet_tf.errors import UserError, reason
from xlnet_tf.records.job_notes import JobNotes, are_intact
from xlnet_tf.text.sorted_windows import sorted_windows, text_bytes

# With the shards' name after it, the folder of the notes of finished shards, until all are finished.
UNFINISHED = "unfinished_"
_WINDOW = 64  # batches that are sorted together
_WINDOW_BYTES = 1 << 18  # of text, after which a window ends early: each token may have a vector
_SHOWN_CHARACTERS = 200  # of a row that failed

Inputs = Mapping[str, str | Sequence[str]]


class Answerer(NamedTuple):
    """A loaded model."""

    # From a row's columns to the model's inputs; raises UserError if they are wrong
    read: Callable[[Mapping[str, Any]], Inputs]
    answer: Callable[[Sequence[Inputs]], Sequence[Mapping[str, Any]]]  # from a batch to an answer for each
    outputs: formats.Outputs
    inputs: Collection[str] = ()  # names of columns that an answer may repeat


class RowModel(Protocol):
    """A model that answers rows: small, picklable, equal to another with the same answers."""

    def load(self, threads: int) -> Answerer:
        """Loads the model in the process that answers, which may use this many threads."""


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """One shard's job: its rows, their model and format, and what is known of it."""

    corpus_shard: corpus.CorpusShard
    name: str  # what the shards' names begin with
    num_shards: int
    folder: str
    model: RowModel
    batch_size: int
    threads: int
    output_format: str
    columns: tuple[str, ...]  # the first row's, for formats whose files must all have the same
    earlier: Mapping[str, Any] | None = None  # a finished run's note on the shard
    deaths: int = 0  # how many processes it has killed

    def after_death(self) -> "ShardJob":
        """Returns the job for the next process, which must find the row that kills it."""
        return dataclasses.replace(self, deaths=self.deaths + 1)

    @property
    def file(self) -> str:
        return shard_name(self.name, self.corpus_shard.index, self.num_shards, self.output_format)

    @property
    def failed_file(self) -> str:
        """Name of the file of failed rows, which exists only if there are any."""
        return shard_name(f"failed-{self.name}", self.corpus_shard.index, self.num_shards, "jsonl")


def shard_name(name: str, index: int | str, num_shards: int, suffix: str) -> str:
    """Returns the name of a shard, or a pattern for all of them if the index is "*"."""
    number = index if isinstance(index, str) else f"{index:05d}"
    return f"{name}-{number}-of-{num_shards:05d}.{suffix}"


def answer_shard(job: ShardJob) -> dict[str, Any]:
    """Answers a shard, unless it has been answered; returns its index, the numbers of its rows and of
    failed ones, the sha256 of the rows read and of each file by name, and whether it was kept.
    """
    rows = list(corpus.read_rows(job.corpus_shard))
    folder = epath.Path(job.folder)
    notes = JobNotes(folder / f"{UNFINISHED}{job.name}")
    rows_sha256 = _digest(rows)
    there = job.earlier or notes.read(job.file)
    if there and there["rows_sha256"] == rows_sha256 and are_intact(folder, there["files"]):
        return {**there, "kept": True}
    deadly = notes.folder / f"{job.file}.deaths"
    deaths = Deaths(deadly, job.deaths) if job.deaths else None
    with _loading:
        model = _load(job.model, job.threads)
    if deaths:
        model = model._replace(answer=functools.partial(deaths.answer, model.answer))
    failed: list[str] = []
    taken = set(model.outputs) - set(model.inputs)
    try:
        columns = [*renamed(dict.fromkeys(job.columns), taken)]
    except UserError as error:
        raise UserError(f"the corpus has {error}: rename a column, or write jsonl") from None
    with formats.writing(folder / job.file, columns, model.outputs) as write:
        for row, given, answer in _answers(model, rows, taken, job.batch_size):
            if isinstance(answer, str):
                failed.append(_failure(row, answer))
            else:
                write(given, answer)
    if failed:
        files.write(folder / job.failed_file, "".join(failed))
    else:
        (folder / job.failed_file).unlink(missing_ok=True)
    names = [job.file, *([job.failed_file] if failed else [])]
    done = {
        "index": job.corpus_shard.index,
        "rows": len(rows),
        "failed": len(failed),
        "rows_sha256": rows_sha256,
        "files": {name: files.sha256(folder / name) for name in names},
    }
    notes.write(job.file, done)
    deadly.unlink(missing_ok=True)
    return {**done, "kept": False}


def _answers(
    model: Answerer, rows: Sequence[corpus.CorpusRow], taken: Collection[str], batch_size: int
) -> Iterator[tuple[corpus.CorpusRow, Mapping[str, Any], Mapping[str, Any] | str]]:
    """Yields each row with its output columns and its answer or error message."""
    windows = sorted_windows(
        (_read(model, row, taken) for row in rows),
        lambda each: None if isinstance(each[-1], str) else text_bytes(each[-1]),
        batch_size,  # the longest first: what does not fit into memory fails at once
        most_rows=_WINDOW * batch_size,
        most=_WINDOW_BYTES + 1,
        earlier_first=True,
    )
    for window, batches in windows:
        found = [inputs for *_, inputs in window]
        for batch in batches:
            for index, answer in zip(batch, _isolated(model, [found[index] for index in batch])):
                found[index] = answer
        yield from ((row, given, answer) for (row, given, _), answer in zip(window, found))


def _read(
    model: Answerer, row: corpus.CorpusRow, taken: Collection[str]
) -> tuple[corpus.CorpusRow, Mapping[str, Any], Inputs | str]:
    """Returns a row with its output columns and its inputs or error message."""
    if row.error:
        return row, {}, row.error
    try:
        inputs = model.read(row.values)
        return row, renamed(row.values, taken), inputs
    except UserError as error:
        return row, {}, str(error)


def _isolated(model: Answerer, batch: Sequence[Inputs]) -> list[Mapping[str, Any] | str]:
    """Answers a batch; a failing one is halved down to the rows that make it fail."""
    try:
        answers = model.answer(batch)
        if len(answers) != len(batch):
            raise UserError(f"the model gives {len(answers)} answers to {len(batch)} rows")
    except Exception as error:
        if len(batch) == 1:
            if not isinstance(error, UserError):
                return [f"{type(error).__name__}: {reason(error)}"]
            return [str(error).replace("texts[0]", "the text")]  # whose place in the file is noted
        half = len(batch) // 2
        return [*_isolated(model, batch[:half]), *_isolated(model, batch[half:])]
    return ["the answer is NaN or infinite" if _is_bad(answer) else answer for answer in answers]


def _is_bad(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.floating):
        return value.dtype.kind == "f" and not np.isfinite(value).all()
    if isinstance(value, Mapping):
        return any(map(_is_bad, value.values()))
    if isinstance(value, list):
        return any(map(_is_bad, value))
    return isinstance(value, float) and not np.isfinite(value)


def _failure(row: corpus.CorpusRow, why: str) -> str:
    values = json.dumps(row.values, ensure_ascii=False) if row.values else ""
    cut = values if len(values) <= _SHOWN_CHARACTERS else f"{values[:_SHOWN_CHARACTERS]}..."
    return json_line({**row.location, "reason": " ".join(why.split()), **({"found": cut} if cut else {})})


def _digest(rows: Sequence[corpus.CorpusRow]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.start, row.values, row.error]).encode())
    return digest.hexdigest()


_loading = threading.Lock()  # a worker of Beam may have several threads, and must not hold the model twice


@functools.lru_cache(maxsize=1)
def _load(model: RowModel, threads: int) -> Answerer:
    return model.load(threads)

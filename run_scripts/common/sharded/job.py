"""All shards of a corpus: planned here, answered wherever the runner runs them, and counted."""

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from run_scripts.common.sharded.models import TextModel
from run_scripts.common.sharded.options import ShardOptions, TextOptions
from run_scripts.common.sharded.shard import UNFINISHED, RowModel, ShardJob, answer_shard, shard_name
from tfrecord_builders import corpus
from tfrecord_builders.common import runners
from tfrecord_builders.common.progress import BuildProgress
from tfrecord_builders.common.rows import other_delimiter
from xlnet_tf import files, folders, ownership
from xlnet_tf.differences import settings_difference
from xlnet_tf.errors import UserError

SCRATCH = "unfinished-scratch"  # what Beam's workers and the process that waits for them exchange


def first_rows(source: corpus.CorpusOptions, options: ShardOptions) -> list[corpus.CorpusRow]:
    """Returns the first readable rows of a corpus: at least one."""
    error = "it has no rows"
    for shard in corpus.plan_shards(corpus.find_sources(source, tables=True), options.shard_bytes):
        rows = list(corpus.read_rows(shard))
        if readable := [row for row in rows if not row.error]:
            return readable
        if rows:
            error = f"{rows[0].where}: {rows[0].error}"
            break
    raise UserError(f"the corpus {', '.join(source.input) or source.tfds_name} cannot be read: {error}")


def run_texts(name: str, model: TextModel, texts: TextOptions, weights: str, options: ShardOptions) -> None:
    """Answers a corpus' text column (see `run`); the file `weights` changes with the model's weights."""
    if not texts.output_dir:
        raise UserError("--output_dir is missing: the folder for the answers to a corpus")
    source = options.corpus(texts.data, model.text_field)
    rows = first_rows(source, options)
    if not any(model.text_field in row.values for row in rows):
        raise UserError(
            f"{rows[0].source} has the columns {', '.join(rows[0].values)}, expected {model.text_field!r}: "
            f"name the one with the text by --text_field{other_delimiter(rows[0].values)}"
        )
    run(
        name,
        model.of_version(),
        source,
        options,
        output_dir=texts.output_dir,
        batch_size=texts.batch_size,
        settings={**dataclasses.asdict(model), "weights": fingerprint(weights)},
        columns=tuple(rows[0].values),
    )


def fingerprint(path: epath.PathLike) -> list[Any]:
    """Returns a file's identity with JSON types."""
    file = epath.Path(path).stat()
    return [str(path), file.length, file.mtime]


def run(
    name: str,
    model: RowModel,
    source: corpus.CorpusOptions,
    options: ShardOptions,
    *,
    output_dir: str,
    batch_size: int,
    settings: Mapping[str, Any],
    columns: tuple[str, ...],
) -> None:
    """Answers a corpus into shards; resumes an interrupted job.

    Args:
        name: what the shards' names begin with.
        settings: whatever else determines the answers, with JSON types.
        columns: those of the corpus' first row, for formats whose files must all have the same.

    Raises UserError if the corpus would include the answers, the folder holds those of another job, a worker
    failed, or too many rows failed.
    """
    _check_output(name, source, options, output_dir)
    folder = files.make_folder(output_dir)
    columns = () if options.output_format == "jsonl" else columns
    sources = corpus.find_sources(source, tables=True)
    snapshot = corpus.snapshot(sources)
    shards = functools.partial(corpus.plan_shards, sources, options.shard_bytes)
    noted = {
        **settings,
        "batch_size": batch_size,
        "worker_threads": options.worker_threads,
        "output_format": options.output_format,
        "shard_mb": options.shard_mb,
        "documents": source.documents,
        "columns": list(columns),
        "corpus": _corpus_summary(sources),
    }
    with ownership.folder_lease(folder, f"writing {name}", "--output_dir") as owner:
        note = folder / f"{name}.json"
        job = _open(note, noted)
        if "num_shards" not in job:
            job["num_shards"] = _count(shards())
            files.write(note, json.dumps(job, indent=1))
        files.make_folder(folder / f"{UNFINISHED}{name}")
        first = ShardJob(
            None, name, job["num_shards"], str(folder), model, batch_size,
            options.worker_threads, options.output_format, columns,
        )  # fmt: skip
        with BuildProgress(sum(source.num_bytes for source in sources), name, True) as bar:
            done = _answer(_jobs(first, shards(), job), options, folder, owner, bar)
        snapshot.check()
        counts = {count: sum(shard[count] for shard in done) for count in ("rows", "failed")}
        files.write(note, json.dumps({**job, **counts, "shards": done}, indent=1))
        files.remove_unfinished(folder, kept=ownership.FILE)  # of workers that died
        for leftover in (f"{UNFINISHED}{name}", SCRATCH):
            (folder / leftover).rmtree(missing_ok=True)
    _report(name, folder, job["num_shards"], counts, options)


def _check_output(name: str, source: corpus.CorpusOptions, options: ShardOptions, output_dir: str) -> None:
    """Raises UserError if the folder belongs to others, or the answers would become part of the corpus."""
    folders.claim(output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
    outputs = [f"{name}.json", shard_name(name, 0, 1, options.output_format)]
    outputs.append(shard_name(f"failed-{name}", 0, 1, "jsonl"))
    for path in source.input:
        if any(corpus.is_part(epath.Path(output_dir) / output, path) for output in outputs):
            raise UserError(
                f"the answers in --output_dir={output_dir} would become part of the corpus {path}: choose "
                "another folder"
            )


def _jobs(
    template: ShardJob, shards: Iterable[corpus.CorpusShard], noted: Mapping[str, Any]
) -> Iterator[ShardJob]:
    """Yields the job of each shard, with an earlier run's notes on it."""
    earlier = {shard["index"]: shard for shard in noted.get("shards", ())}
    for shard in shards:
        yield dataclasses.replace(template, corpus_shard=shard, earlier=earlier.get(shard.index))


def _count(shards: Iterable[corpus.CorpusShard]) -> int:
    try:
        return sum(1 for _ in shards)
    except UserError as error:
        raise UserError(
            f"{error} No row was answered: repair the file or leave it out of --data, and start again"
        ) from None


def _answer(
    jobs: Iterable[ShardJob],
    options: ShardOptions,
    folder: epath.Path,
    owner: ownership.Ownership,
    bar: BuildProgress,
) -> list[dict[str, Any]]:
    """Runs all jobs; returns the results of `answer_shard`, in the order of shards."""
    running = runners.run_jobs(
        answer_shard,
        jobs,
        runner=options.runner,
        num_workers=options.num_workers,
        beam_options=options.beam_options,
        scratch=folder / SCRATCH,
        after_death=ShardJob.after_death,
    )
    done: list[dict[str, Any]] = []
    with contextlib.closing(running):
        for job, result in running:
            owner.check()
            kept = result.pop("kept")
            done.append(result)
            bar.add(job.corpus_shard.source_bytes, job.corpus_shard.num_bytes, result["rows"], kept)
    return sorted(done, key=lambda shard: shard["index"])


def _open(path: epath.Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns a job's note, with its shards if it is finished; a job without any shard is replaced."""
    has_shards = any(other.name.startswith(f"{path.stem}-") for other in path.parent.iterdir())
    if not path.exists():
        if has_shards:
            raise UserError(
                f"{path.parent} holds {path.stem}-* of an unknown job: choose another --output_dir, or "
                "remove it"
            )
        return {"settings": settings}
    job = files.read_json(path, fix="remove the folder, or choose another --output_dir")
    found = job.get("settings", {})
    if "dtype" in settings:
        found = {"dtype": "float32", **found}  # earlier versions knew no other and did not note it
    difference = settings_difference(found, settings)
    if difference and has_shards:
        listed = "\n  ".join(difference)
        raise UserError(
            f"{path.parent} holds the answers of another job: choose another --output_dir, or remove "
            f"it. Differences:\n  {listed}"
        )
    return {"settings": settings} if difference else job


def _corpus_summary(sources) -> dict[str, Any]:
    """Returns a corpus' identity, for any number of files; each shard also compares its rows."""
    listed = [[source.name, source.num_bytes] for source in sources]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    return {"files": len(listed), "bytes": sum(size for _, size in listed), "names_and_sizes": digest}


def _report(name: str, folder: epath.Path, num_shards: int, counts: Mapping[str, int], options) -> None:
    shards = folder / shard_name(name, "*", num_shards, options.output_format)
    noun = "shard" if num_shards == 1 else "shards"
    print(f"{counts['rows']:,} rows, {counts['failed']:,} failed, {num_shards:,} {noun}\n  {shards}")
    if not counts["failed"]:
        return
    failed = folder / shard_name(f"failed-{name}", "*", num_shards, "jsonl")
    print(f"  {failed}")
    if counts["failed"] > options.max_failed:
        raise UserError(
            f"{counts['failed']:,} of {counts['rows']:,} rows failed, expected at most --max_failed="
            f"{options.max_failed}: {failed} says which and why. The others are answered"
        )

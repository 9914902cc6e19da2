"""Builds pretraining records from a corpus: streams of segments with precomputed permutation masks."""

import collections
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfrecord_builders import corpus
from tfrecord_builders.common import runners
from tfrecord_builders.common.progress import BuildProgress
from tfrecord_builders.pretraining import dedup, output_folder, worker
from tfrecord_builders.pretraining import plan as pretraining_sets
from tfrecord_builders.pretraining import report as pretraining_report
from tfrecord_builders.pretraining.dedup import Choice
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf import files, ownership
from xlnet_tf.errors import UserError
from xlnet_tf.records import segments
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.text.marks import warn_of_dropped_marks
from xlnet_tf.text.tokenizer import XLNetTokenizer, find_file

RunJobs = Callable[[Callable[[Any], Any], Iterator[Any]], Iterator[tuple[Any, Any]]]


def build_pretraining_records(options: PretrainingOptions, progress: bool = False) -> Manifest:
    """Builds a set of pretraining records, or a training set and a held-out set; see `build_sets`.

    Returns:
        The manifest of the only set, or of the training set.
    """
    return build_sets(options, progress)[0]


def build_sets(options: PretrainingOptions, progress: bool = False) -> list[Manifest]:
    """Builds sets of pretraining records: one, or with `dev_fraction` a training set and a held-out set.

    Args:
        options: what to build.
        progress: whether to draw progress bars on stderr.

    Returns:
        The manifests, which have been written last.

    Raises:
        UserError: an option, the corpus, the tokenizer or the output folder is wrong, a file cannot be
            written, or a worker died. No manifest is left then; finished shards are kept for the next run.
        FileNotFoundError: a corpus file or the tokenizer is missing.
    """
    options = options.resolved()
    tokenizer = XLNetTokenizer(find_file(options.tokenizer), cleaning=options.cleaning)
    snapshot = corpus.Snapshot(options.corpus.input)
    sources = corpus.find_sources(options.corpus)
    warn_of_dropped_marks(corpus.sample_lines(sources), options.cleaning)
    sets = pretraining_sets.new_manifests(options, tokenizer, sources)
    with contextlib.ExitStack() as stack:
        owners = [
            stack.enter_context(
                ownership.folder_lease(
                    files.make_folder(started.folder), "building records", "--output_dir", at_once=False
                )
            )
            for started in sets
        ]

        def run_jobs(function, jobs):
            for one in runners.run_jobs(
                function,
                jobs,
                runner=options.runner,
                num_workers=options.num_workers,
                beam_options=options.beam_options,
                scratch=sets[0].folder / output_folder.SCRATCH_NAME,
            ):
                for owner in writing:
                    owner.check()
                yield one

        there = [output_folder.prepare(started, options.overwrite) for started in sets]
        writing = [owner for owner, whole in zip(owners, there) if whole is None]
        for owner in writing:
            owner.check()
        for started in sets:
            path = started.tokenizer_path
            if not path.exists() or path.read_bytes() != tokenizer.model_proto:
                files.write(path, tokenizer.model_proto)
        choice = None
        if options.dedup or options.dev_fraction:
            choice = _choose_documents(options, sources, run_jobs, progress)
        done = [
            whole is not None and _is_whole(options, sources, choice, whole, run_jobs, progress)
            for whole in there
        ]
        todo = [started for started, is_done in zip(sets, done) if not is_done]
        writing = [owner for owner, is_done in zip(owners, done) if not is_done]
        built = {
            manifest.split: manifest
            for manifest in _build(options, todo, sources, snapshot, choice, run_jobs, progress)
        }
        return [built.get(started.split, whole) for started, whole in zip(sets, there)]


def _choose_documents(
    options: PretrainingOptions, sources: Sequence[corpus.Source], run_jobs: RunJobs, progress: bool
) -> Choice:
    """Reads the corpus once to compare its documents."""
    groups = dedup.group_slices(corpus.plan_shards(sources, options.slice_bytes))
    found: dict[int, list[dict[str, Any]]] = {}
    with _progress_bar("comparing documents", sources, progress) as bar:
        for group, of_slices in run_jobs(dedup.fingerprint_group, groups):
            for one in of_slices:
                one["fingerprints"] = np.array(one["fingerprints"], np.uint64)  # a fifth of the list's memory
            found[group[0].index] = of_slices
            bar.add(sum(one.source_bytes for one in group))
    in_order = (one for first in sorted(found) for one in found.pop(first))
    choice = Choice(in_order, options.dedup, options.dev_fraction)
    if options.dev_fraction and choice.documents and choice.held_out in (0, choice.documents):
        raise UserError(
            f"documents in the corpus: {choice.documents:,}, held out by --dev_fraction="
            f"{options.dev_fraction}: {choice.held_out:,}; expected some to train on and some held out. In "
            "text files blank lines separate documents (or see --documents); jsonl and parquet have one a row"
        )
    return choice


def _is_whole(
    options: PretrainingOptions,
    sources: Sequence[corpus.Source],
    choice: Choice | None,
    manifest: Manifest,
    run_jobs: RunJobs,
    progress: bool,
) -> bool:
    """Says whether a set is what its manifest says and what its text would give; if not, reopens it."""
    earlier = output_folder.by_slice(manifest.shards)
    jobs = pretraining_sets.plan_jobs(options, sources, choice, [(manifest, earlier)])
    with (
        contextlib.closing(run_jobs(worker.is_finished, jobs)) as checked,
        _progress_bar(f"checking {manifest.split}", sources, progress) as bar,
    ):
        slices = 0
        for job, is_finished in checked:
            slices += 1
            bar.add(job.corpus_shard.source_bytes)
            if not is_finished:
                slices = -1
                break
    if slices * manifest.num_passes == len(manifest.shards):
        output_folder.remove_leftovers(manifest)
        if progress:
            print(f"{manifest.folder} is whole and of this text: nothing was written", file=sys.stderr)
        return True
    output_folder.reopen(manifest.folder)
    return False


def _build(
    options: PretrainingOptions,
    sets: Sequence[Manifest],
    sources: Sequence[corpus.Source],
    snapshot: corpus.Snapshot,
    choice: Choice | None,
    run_jobs: RunJobs,
    progress: bool,
) -> list[Manifest]:
    """Builds the shards that are not there, then writes the manifests."""
    if not sets:
        return []
    shards: dict[str, list[Shard]] = collections.defaultdict(list)
    fingerprints: list[np.ndarray] = []
    with_earlier = [(started, output_folder.earlier_shards(started.folder)) for started in sets]
    names = " and ".join(started.split for started in sets)
    with _progress_bar(f"building {names}", sources, progress) as bar:
        jobs = pretraining_sets.plan_jobs(options, sources, choice, with_earlier)
        for job, built in run_jobs(worker.build_job, jobs):
            shards[job.manifest.split] += [Shard(**values) for values in built["shards"]]
            fingerprints.append(np.array(built["fingerprints"], np.uint64))
            bar.add(
                job.corpus_shard.source_bytes,
                text_bytes=built["shards"][0]["statistics"]["text"]["bytes"],
                records=sum(shard.records for shard in shards[job.manifest.split][-options.num_passes :]),
                kept=not built["built"],
            )
    manifests = []
    for started in sets:
        if choice is None:
            duplicates = dedup.count_duplicates(fingerprints)
        else:
            duplicates = choice.duplicates[started.documents["side"] == "dev"]
        in_order = sorted(shards[started.split], key=lambda shard: (shard.pass_index, shard.slice_index))
        statistics = pretraining_report.merge_statistics(in_order) | {"duplicate_documents": duplicates}
        manifests.append(dataclasses.replace(started, shards=tuple(in_order), statistics=statistics))
        _check_enough_text(manifests[-1])
    snapshot.check()
    for manifest in manifests:
        output_folder.finish(manifest)
    return [Manifest.load(manifest.folder) for manifest in manifests]


def _progress_bar(what: str, sources: Sequence[corpus.Source], progress: bool) -> BuildProgress:
    """Returns a bar over the corpus' bytes, as they are stored."""
    return BuildProgress(sum(source.num_bytes for source in sources), what, progress)


def _check_enough_text(manifest: Manifest) -> None:
    if not manifest.records:
        tokens = manifest.statistics["tokens"]
        needed = manifest.seq_len - segments.NUM_SPECIAL
        what, fix = "the corpus", "use more text"
        if manifest.documents["side"] == "dev":
            what, fix = "the held-out set", "use a larger --dev_fraction, more text"
        raise UserError(
            f"{what} is too small for one stream: it has {tokens} tokens in "
            f"{manifest.statistics['documents']} documents, a segment needs {needed}: {fix} or "
            f"a smaller --seq_len (now {manifest.seq_len})"
        )

"""Builds pretraining records from a corpus: streams of segments with precomputed permutation masks."""

import collections
import contextlib
import dataclasses
import functools
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
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf import files, ownership
from xlnet_tf.errors import UserError
from xlnet_tf.records import segments
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.text.locating import find_file
from xlnet_tf.text.marks import warn_of_dropped_marks
from xlnet_tf.text.tokenizer import XLNetTokenizer

RunJobs = Callable[[Callable[[Any], Any], Iterator[Any]], Iterator[tuple[Any, Any]]]


def build_pretraining_records(options: PretrainingOptions, progress: bool = False) -> Manifest:
    """Builds one set, or a training and a held-out set; returns the first manifest. See `build_sets`."""
    return build_sets(options, progress)[0]


def build_sets(options: PretrainingOptions, progress: bool = False) -> list[Manifest]:
    """Builds sets of pretraining records: one, or with `dev_fraction` a training set and a held-out set.

    Returns their manifests, which are written last. Raises UserError if an option, the corpus, the tokenizer
    or the output folder is wrong, a file cannot be written, or a worker died; FileNotFoundError if the
    corpus or the tokenizer is missing. No manifest is left then; the next run keeps finished shards.
    """
    options = options.resolved()
    tokenizer = XLNetTokenizer(find_file(options.tokenizer), cleaning=options.cleaning)
    sources = corpus.find_sources(options.corpus)
    snapshot = corpus.snapshot(sources)
    warn_of_dropped_marks(corpus.sample_lines(sources), options.cleaning)
    manifests = pretraining_sets.new_manifests(options, tokenizer, sources)
    run_jobs = functools.partial(
        runners.run_jobs,
        runner=options.runner,
        num_workers=options.num_workers,
        beam_options=options.beam_options,
        scratch=manifests[0].folder / output_folder.SCRATCH_NAME,
    )
    with contextlib.ExitStack() as stack:
        sets = [
            _Set(started, stack.enter_context(_lease(files.make_folder(started.folder))))
            for started in manifests
        ]
        for each in sets:
            each.whole, each.earlier = output_folder.prepare(each.started, options.overwrite)
        build = _Build(sets, sources, run_jobs, progress)
        build.check_owners()
        for started in manifests:
            path = started.tokenizer_path
            if not path.exists() or path.read_bytes() != tokenizer.model_proto:
                files.write(path, tokenizer.model_proto)
        if options.dedup or options.dev_fraction:
            build.choose_documents()
        for each in sets:
            build.check_whole(each)
        build.write_shards()
        snapshot.check()
        return build.finish()


_lease = functools.partial(
    ownership.folder_lease, what="building records", flag="--output_dir", at_once=False
)


@dataclasses.dataclass
class _Set:
    """A set of a build: `started` is its manifest without shards, `whole` that of the finished set."""

    started: Manifest
    owner: ownership.Ownership
    whole: Manifest | None = None
    earlier: output_folder.ShardsBySlice = dataclasses.field(default_factory=dict)


class _Build:
    """A build of one set, or of a training set and a held-out set, from the same documents."""

    def __init__(
        self, sets: Sequence[_Set], sources: Sequence[corpus.Source], run_jobs: RunJobs, progress: bool
    ):
        self._sets, self._sources, self._progress = sets, sources, progress
        self._run_jobs = run_jobs
        self._documents = sets[0].started.documents  # how they are chosen
        self._choice: dedup.Choice | None = None  # of documents; None: all, for the only set
        self._shards: dict[str, list[Shard]] = collections.defaultdict(list)  # by split
        self._fingerprints: list[np.ndarray] = []

    def check_owners(self) -> None:
        """Raises UserError if another process has taken over an output folder."""
        for each in self._unfinished():
            each.owner.check()

    def choose_documents(self) -> None:
        groups = dedup.group_slices(corpus.plan_shards(self._sources, self._sets[0].started.slice_bytes))
        found: dict[int, list[dict[str, Any]]] = {}
        with self._progress_bar("comparing documents") as bar:
            for group, of_slices in self._run(dedup.fingerprint_group, groups):
                for one in of_slices:
                    one["fingerprints"] = np.array(one["fingerprints"], np.uint64)  # a fifth of the memory
                found[group[0].index] = of_slices
                bar.add(sum(one.source_bytes for one in group))
        in_order = (one for first in sorted(found) for one in found.pop(first))
        fraction = self._documents["dev_fraction"]
        self._choice = choice = dedup.Choice(in_order, self._documents["dedup"], fraction)
        if fraction and choice.documents and choice.held_out in (0, choice.documents):
            raise UserError(
                f"documents in the corpus: {choice.documents:,}, held out by --dev_fraction="
                f"{fraction}: {choice.held_out:,}; expected some to train on and some held out. In text "
                "files blank lines separate documents (or see --documents); jsonl and parquet have one a row"
            )

    def check_whole(self, each: _Set) -> None:
        """Reopens a set that does not match its manifest or its text."""
        if each.whole is None:
            return
        shards = output_folder.by_slice(each.whole.shards)
        jobs = pretraining_sets.plan_jobs(self._sources, self._choice, [(each.whole, shards)])
        with (
            contextlib.closing(self._run(worker.is_finished, jobs)) as checked,
            self._progress_bar(f"checking {each.started.split}") as bar,
        ):
            slices = 0
            for job, is_finished in checked:
                slices += 1
                bar.add(job.corpus_shard.source_bytes)
                if not is_finished:
                    slices = -1
                    break
        if slices * each.whole.num_passes == len(each.whole.shards):
            output_folder.remove_leftovers(each.whole)
            if self._progress:
                print(
                    f"{each.started.folder} is whole and of this text: nothing was written", file=sys.stderr
                )
        else:
            output_folder.reopen(each.started.folder)
            each.whole, each.earlier = None, shards

    def write_shards(self) -> None:
        todo = self._unfinished()
        if not todo:
            return
        title = f"building {' and '.join(each.started.split for each in todo)}"
        with self._progress_bar(title) as bar:
            sets = [(each.started, each.earlier) for each in todo]
            jobs = pretraining_sets.plan_jobs(self._sources, self._choice, sets)
            for job, built in self._run(worker.build_job, jobs):
                shards = [Shard(**values) for values in built["shards"]]
                self._shards[job.manifest.split] += shards
                self._fingerprints.append(np.array(built["fingerprints"], np.uint64))
                bar.add(
                    job.corpus_shard.source_bytes,
                    text_bytes=shards[0].statistics["text"]["bytes"],
                    records=sum(shard.records for shard in shards),
                    kept=not built["built"],
                )

    def finish(self) -> list[Manifest]:
        todo = self._unfinished()
        for each in todo:
            each.whole = self._manifest(each.started)
            _check_enough_text(each.whole)
        for each in todo:
            output_folder.finish(each.whole)
        return [each.whole for each in self._sets]

    def _manifest(self, started: Manifest) -> Manifest:
        if self._choice is None:
            duplicates = dedup.count_duplicates(self._fingerprints)
        else:
            duplicates = self._choice.duplicates[started.documents["side"] == "dev"]
        shards = sorted(self._shards[started.split], key=lambda shard: (shard.pass_index, shard.slice_index))
        statistics = pretraining_report.merge_statistics(shards) | {"duplicate_documents": duplicates}
        return dataclasses.replace(started, shards=tuple(shards), statistics=statistics)

    def _unfinished(self) -> list[_Set]:
        return [each for each in self._sets if each.whole is None]

    def _run(self, function: Callable[[Any], Any], jobs: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        for done in self._run_jobs(function, jobs):
            self.check_owners()
            yield done

    def _progress_bar(self, title: str) -> BuildProgress:
        return BuildProgress(sum(source.num_bytes for source in self._sources), title, self._progress)


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

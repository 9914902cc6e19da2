"""Builds pretraining records from a corpus: streams of segments with precomputed permutation masks.

python -m tfrecord_builders.pretraining --input='corpus/*.gz' --tokenizer=spiece.model --output_dir=records

The corpus has one sentence per line and a blank line between documents. The output folder gets the shards, a
copy of the tokenizer and, last of all, manifest.json. Run it again after an interruption: finished shards
are kept.
"""

import collections
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tqdm
from absl import flags
from etils import epath

from tfrecord_builders import corpus, pretraining_unit
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.records import manifest as manifest_lib
from xlnet_tf.records import ranks, segments, spans
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import make_folder, write_atomically
from xlnet_tf.records.spec import MAX_PASSES, MAX_SLICES, RecordSpec
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer

TOKENIZER_NAME = "spiece.model"
BUILD_NAME = "build.json"  # settings of a build that has not ended
FEW_STREAMS = 32
MAX_UNKNOWN_RATE = 0.01
MIN_WORD_START_RATE = 0.3  # below, spans of whole words become very long pieces of text
_LEFTOVER = re.compile(
    r"-pass\d+-slice\d+\.tfrecord(\.done\.json)?(\.tmp\d+)?$|^(build|manifest)\.json\.tmp\d+$"
)


@dataclasses.dataclass(frozen=True)
class PretrainingOptions:
    """What to build; see the flags of the same names. None means the default that the help states."""

    input: Sequence[str]
    tokenizer: str
    output_dir: str
    split: str = "train"
    seq_len: int = 512
    reuse_len: int | None = None
    num_predict: int | None = None
    perm_size: int | None = None
    objective: str = "permutation"
    functional_tokens: str = "ordered"
    mask_alpha: int = 6
    mask_beta: int = 1
    span_mode: str = "words"
    max_words: int = 5
    bidirectional: bool = True
    num_passes: int = 1
    lower: bool = False
    keep_accents: bool = False
    use_eod: bool = True
    sentence_split: str = ""
    stream_segments: int = 64
    slice_mb: float = 4.0
    num_workers: int | None = None
    seed: int = 0
    compat: bool = False
    overwrite: bool = False

    def resolved(self) -> "PretrainingOptions":
        """Returns the options with all defaults filled in, checked as far as they can be without the data.

        Raises:
            UserError: an option is out of range or does not fit the others.
        """
        reuse_len = self.seq_len // 2 if self.reuse_len is None else self.reuse_len
        segments.check_lengths(self.seq_len, reuse_len)
        num_predict = self.num_predict
        if self.objective == "autoregressive":
            everything = self.seq_len - segments.NUM_FUNCTIONAL
            if num_predict not in (None, everything):
                raise UserError(
                    f"num_predict is {num_predict}, but objective=autoregressive predicts all {everything} "
                    "tokens of a segment: leave num_predict out"
                )
            num_predict = everything
        elif num_predict is None:
            num_predict = round(self.seq_len * self.mask_beta / self.mask_alpha)
        resolved = dataclasses.replace(
            self,
            reuse_len=reuse_len,
            num_predict=num_predict,
            perm_size=reuse_len if self.perm_size is None else self.perm_size,
            num_workers=self.num_workers or len(os.sched_getaffinity(0)),
        )
        resolved._check()
        return resolved

    def _check(self) -> None:
        choices = {
            "objective": ranks.OBJECTIVES,
            "functional_tokens": ranks.FUNCTIONAL_TOKENS,
            "span_mode": spans.SPAN_MODES,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise UserError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}")
        ranges = {
            "mask_beta": (1, self.mask_alpha),
            "max_words": (1, self.seq_len),
            "num_passes": (1, MAX_PASSES),
            "stream_segments": (1, 1 << 20),
            "slice_mb": (0.001, 64),
            "num_workers": (1, 1024),
            "seed": (0, 2**63),
        }
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise UserError(f"{name} is {getattr(self, name)}, expected {low} to {high}")
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.split):
            raise UserError(f"split is {self.split!r}, expected a name of letters, digits and underscores")
        if not re.fullmatch(r"([a-z]{2,3}(-[a-z]+)?)?", self.sentence_split):
            raise UserError(
                f"sentence_split is {self.sentence_split!r}, expected a language code such as en, de or zh"
            )
        if self.objective != "autoregressive":
            spans.split_num_predict(self.num_predict, self.seq_len, self.reuse_len)
        if self.objective == "permutation":
            ranks.check_perm_size(self.perm_size, self.seq_len, self.reuse_len)
        if self.compat and (self.reuse_len * 2 != self.seq_len or self.objective != "permutation"):
            raise UserError(
                f"compat is the original's builder: it needs reuse_len {self.seq_len / 2:g} "
                f"(now {self.reuse_len}) and objective permutation (now {self.objective})"
            )

    @property
    def cleaning(self) -> CleaningConfig:
        return CleaningConfig(lower=self.lower, keep_accents=self.keep_accents)

    @property
    def slice_bytes(self) -> int:
        return int(self.slice_mb * 1e6)


def build_pretraining_records(options: PretrainingOptions, progress: bool = False) -> Manifest:
    """Builds a set of pretraining records.

    Args:
        options: what to build.
        progress: whether to draw a progress bar on stderr.

    Returns:
        The manifest, which has been written last.

    Raises:
        UserError: an option, the corpus, the tokenizer or the output folder is wrong, a file cannot be
            written, or a worker died. No manifest is left then; finished shards are kept for the next run.
        FileNotFoundError: a corpus file or the tokenizer is missing.
    """
    options = options.resolved()
    if not epath.Path(options.tokenizer).exists():
        raise FileNotFoundError(
            f"tokenizer {options.tokenizer} does not exist: train one or check --tokenizer"
        )
    tokenizer = XLNetTokenizer(model_file=options.tokenizer, cleaning=options.cleaning)
    files = corpus.find_files(options.input)
    started = _new_manifest(options, tokenizer, files)
    finished = _prepare_folder(started, options.overwrite)
    write_atomically(started.tokenizer_path, tokenizer.model_proto)

    shards: list[Shard] = []
    total = sum(path.stat().length for path in files)
    with tqdm.tqdm(
        total=total, unit="B", unit_scale=True, desc=f"building {options.split}", disable=not progress
    ) as bar:
        for corpus_slice, built in _run_units(options, started, files, finished):
            shards += built
            bar.set_postfix(records=f"{sum(shard.records for shard in shards):,}", refresh=False)
            bar.update(corpus_slice.source_bytes)
    shards.sort(key=lambda shard: (shard.pass_index, shard.slice_index))
    manifest = dataclasses.replace(started, shards=tuple(shards), statistics=merge_statistics(shards))
    _check_enough_text(manifest)
    manifest.save()
    _remove_leftovers(manifest.folder, keep={shard.file for shard in shards})
    return Manifest.load(manifest.folder)


def merge_statistics(shards: Sequence[Shard]) -> dict[str, Any]:
    """Adds up the statistics of all shards; the text is counted once, whatever the number of passes."""
    text: dict[str, Any] = collections.Counter()
    documents: dict[str, int] = collections.Counter()
    tokens: dict[tuple[int, int], dict[str, Any]] = {}
    runs: dict[int, int] = collections.Counter()
    for shard in shards:
        if shard.pass_index == 0:
            counts = dict(shard.statistics["text"])
            documents.update(counts.pop("document_lengths"))
            text.update(counts)
        for entry in shard.statistics["tokens"]:
            key = (entry["pass"], entry["direction"])
            merged = tokens.setdefault(key, {"in": 0, "written": 0, "dropped": collections.Counter()})
            merged["in"] += entry["in"]
            merged["written"] += entry["written"]
            merged["dropped"].update({reason: n for reason, n in entry["dropped"].items() if n})
        runs.update({length: n for length, n in enumerate(shard.statistics["target_runs"], 1) if n})
    return {
        **text,
        "unknown_rate": text["unknown"] / max(text["tokens"], 1),
        "word_start_rate": text["word_starts"] / max(text["tokens"], 1),
        "document_lengths": {key: documents[key] for key in sorted(documents, key=int)},
        "targets": sum(shard.statistics["targets"] for shard in shards),
        "target_runs": {str(length): runs[length] for length in sorted(runs)},
        "tokens_in": sum(entry["in"] for entry in tokens.values()),
        "tokens_written": sum(entry["written"] for entry in tokens.values()),
        "tokens_dropped": dict(sum((entry["dropped"] for entry in tokens.values()), collections.Counter())),
        "tokens_by_pass": [
            {
                "pass": pass_index,
                "direction": direction,
                "in": entry["in"],
                "written": entry["written"],
                "dropped": dict(entry["dropped"]),
            }
            for (pass_index, direction), entry in sorted(tokens.items())
        ],
    }


def num_streams(manifest: Manifest) -> int:
    """Returns the streams of one pass: the largest batch that the set can fill."""
    size = manifest.stream_segments
    return sum(
        -(-shard.forward_segments // size) + -(-shard.backward_segments // size)
        for shard in manifest.shards
        if shard.pass_index == 0
    )


def warnings(manifest: Manifest) -> list[str]:
    """Returns what a user should know about a finished set before training on it."""
    found = []
    statistics = manifest.statistics
    if statistics["unknown_rate"] > MAX_UNKNOWN_RATE:
        found.append(
            f"{statistics['unknown_rate']:.1%} of the tokens are <unk> (more than {MAX_UNKNOWN_RATE:.0%}): "
            "the tokenizer does not know this text. Is it of another language or case?"
        )
    if statistics["word_start_rate"] < MIN_WORD_START_RATE and manifest.mask["span_mode"] == "words":
        found.append(
            f"only {statistics['word_start_rate']:.1%} of the tokens start a word (less than "
            f"{MIN_WORD_START_RATE:.0%}), so spans of whole words are long: consider --span_mode=pieces"
        )
    if (streams := num_streams(manifest)) < FEW_STREAMS:
        found.append(
            f"only {streams} streams: a batch can have {streams} rows at most. A smaller --stream_segments "
            f"(now {manifest.stream_segments}) makes more of them"
        )
    return found


def summary(manifest: Manifest) -> str:
    """Returns a table of what was built, for a person."""
    statistics = manifest.statistics
    total_bytes = sum(shard.bytes for shard in manifest.shards)
    dropped = ", ".join(f"{n:,} {reason}" for reason, n in statistics["tokens_dropped"].items()) or "none"
    rows = {
        "text": f"{statistics['bytes'] / 1e6:,.1f} MB, {statistics['documents']:,} documents, "
        f"{statistics['sentences']:,} sentences",
        "tokens": f"{statistics['tokens']:,} ({statistics['characters'] / max(statistics['tokens'], 1):.2f} "
        f"characters each, {statistics['unknown_rate']:.2%} <unk>, "
        f"{statistics['word_start_rate']:.0%} start a word)",
        "passes": f"{manifest.num_passes}, {' and '.join(manifest.directions)}",
        "records": f"{manifest.records:,} of {manifest.seq_len} tokens, "
        f"in {num_streams(manifest):,} streams a pass",
        "targets": f"{statistics['targets'] / max(manifest.records, 1):.1f} a record, in runs of "
        f"{_mean_run(statistics['target_runs']):.2f} tokens",
        "tokens in": f"{statistics['tokens_in']:,} = {statistics['tokens_written']:,} written + "
        f"dropped: {dropped}",
        "files": f"{len(manifest.shards)} shards, {total_bytes / 1e6:,.1f} MB, "
        f"{manifest.record_bytes:,} bytes a record",
        "folder": str(manifest.folder),
    }
    return "\n".join(f"  {name:<10} {value}" for name, value in rows.items())


def _mean_run(runs: Mapping[str, int]) -> float:
    return sum(int(length) * n for length, n in runs.items()) / max(sum(runs.values()), 1)


def _new_manifest(
    options: PretrainingOptions, tokenizer: XLNetTokenizer, files: Sequence[epath.Path]
) -> Manifest:
    """Returns the manifest of a set that has no shards yet."""
    spec = RecordSpec(options.seq_len, options.reuse_len, options.num_predict, tokenizer.vocab_size)
    return Manifest(
        schema_version=manifest_lib.SCHEMA_VERSION,
        kind=manifest_lib.KIND,
        split=options.split,
        corpus=[{"file": path.name, "bytes": path.stat().length} for path in files],
        tokenizer={
            "file": TOKENIZER_NAME,
            "sha256": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
            "special_ids": special_tokens.IDS,
        },
        cleaning=options.cleaning.to_dict(),
        use_eod=options.use_eod,
        sentence_split=options.sentence_split,
        seq_len=options.seq_len,
        reuse_len=options.reuse_len,
        num_predict=options.num_predict,
        perm_size=options.perm_size,
        objective=options.objective,
        functional_tokens=options.functional_tokens,
        mask={
            "alpha": options.mask_alpha,
            "beta": options.mask_beta,
            "span_mode": options.span_mode,
            "max_words": options.max_words,
        },
        directions=["forward", "backward"] if options.bidirectional else ["forward"],
        num_passes=options.num_passes,
        stream_segments=options.stream_segments,
        slice_bytes=options.slice_bytes,
        seed=options.seed,
        compat=options.compat,
        record_bytes=spec.record_bytes,
        dtypes=spec.dtypes,
        folder=epath.Path(options.output_dir),
    )


def _prepare_folder(started: Manifest, overwrite: bool) -> dict[int, dict[int, Shard]]:
    """Makes the output folder ready.

    Returns:
        slice -> pass -> shard, of shards that an earlier run of the same build has finished.

    Raises:
        UserError: the folder holds another build.
    """
    folder = started.folder
    make_folder(folder)
    finished: dict[int, dict[int, Shard]] = collections.defaultdict(dict)
    if overwrite:
        (folder / manifest_lib.FILE_NAME).unlink(missing_ok=True)
        (folder / BUILD_NAME).unlink(missing_ok=True)
        _remove_leftovers(folder, keep=set())
    fix = "choose another --output_dir, or give --overwrite to replace"
    there, shards = {}, []
    if (folder / manifest_lib.FILE_NAME).exists():
        try:
            earlier = Manifest.load(folder)
        except UserError as error:
            raise UserError(f"{folder} holds another build: {fix} it. It cannot be read: {error}") from None
        there, shards = earlier.settings(), earlier.shards
    elif (folder / BUILD_NAME).exists():
        there = json.loads((folder / BUILD_NAME).read_text())
        notes = folder.glob(pretraining_unit.done_name("*"))
        shards = [Shard(**json.loads(note.read_text())) for note in notes]
    elif any(_LEFTOVER.search(path.name) for path in folder.iterdir()):
        raise UserError(f"{folder} holds records of an unknown build: {fix} them")
    settings = started.settings()
    # A build that ended before its first record, for its corpus was bad, does not stand in the way.
    if any(shard.records for shard in shards):
        if difference := manifest_lib.settings_difference(there, settings):
            raise UserError(
                f"{folder} holds another build: {fix} it. Differences:\n  " + "\n  ".join(difference)
            )
        for shard in shards:
            finished[shard.slice_index][shard.pass_index] = shard
    write_atomically(folder / BUILD_NAME, manifest_lib.to_json(settings))
    if (folder / manifest_lib.FILE_NAME).exists():
        # Until its shards have been compared with the text, a finished set counts as an unfinished build.
        for shard in shards:
            pretraining_unit.note_done(folder, shard)
        (folder / manifest_lib.FILE_NAME).unlink()
    return finished


def _remove_leftovers(folder: epath.Path, keep: set[str]) -> None:
    """Removes notes, temporary files and shards that no manifest lists."""
    for path in folder.iterdir():
        if _LEFTOVER.search(path.name) and path.name not in keep:
            path.unlink(missing_ok=True)
    (folder / BUILD_NAME).unlink(missing_ok=True)


def _run_units(
    options: PretrainingOptions,
    started: Manifest,
    files: Sequence[epath.Path],
    finished: Mapping[int, Mapping[int, Shard]],
) -> Iterator[tuple[corpus.Slice, list[Shard]]]:
    """Builds all slices, in this process or in workers; yields (slice, its shards) as they become ready."""
    unit = pretraining_unit.UnitOptions(
        split=options.split,
        cleaning=options.cleaning,
        use_eod=options.use_eod,
        sentence_split=options.sentence_split,
        spec=started.spec,
        perm_size=options.perm_size,
        objective=options.objective,
        functional_tokens=options.functional_tokens,
        mask_alpha=options.mask_alpha,
        mask_beta=options.mask_beta,
        span_mode=options.span_mode,
        max_words=options.max_words,
        bidirectional=options.bidirectional,
        num_passes=options.num_passes,
        stream_segments=options.stream_segments,
        seed=options.seed,
        compat=options.compat,
    )

    def jobs():
        for corpus_slice in corpus.plan_slices(files, options.slice_bytes):
            if corpus_slice.index >= MAX_SLICES:
                raise UserError(f"more than {MAX_SLICES} slices: use a larger --slice_mb")
            done = finished.get(corpus_slice.index, {})
            yield corpus_slice, (unit, str(started.tokenizer_path), str(started.folder), corpus_slice, done)

    if options.num_workers == 1:
        for corpus_slice, job in jobs():
            yield corpus_slice, pretraining_unit.build_slice(*job)
        return
    # Not fork: the caller may have threads (TensorFlow has).
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(options.num_workers, context)
    try:
        running: dict[concurrent.futures.Future, corpus.Slice] = {}
        for corpus_slice, job in jobs():
            running[pool.submit(pretraining_unit.build_slice, *job)] = corpus_slice
            if len(running) > 2 * options.num_workers:  # memory holds this many slices at most
                yield from _collect(running, concurrent.futures.FIRST_COMPLETED)
        yield from _collect(running, concurrent.futures.ALL_COMPLETED)
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError(
            "a worker process died (was memory short, or was it killed?): start again with the same flags, "
            "finished shards are kept; less memory is needed with fewer --num_workers "
            f"(now {options.num_workers})"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _collect(running, return_when) -> Iterator[tuple[corpus.Slice, list[Shard]]]:
    """Waits for units and takes those that have ended out of `running`."""
    if return_when == concurrent.futures.ALL_COMPLETED:
        ended = concurrent.futures.as_completed(list(running))
    else:
        ended = concurrent.futures.wait(running, return_when=return_when).done
    for future in ended:
        yield running.pop(future), future.result()


def _check_enough_text(manifest: Manifest) -> None:
    if not manifest.records:
        tokens = manifest.statistics["tokens"]
        needed = manifest.seq_len - segments.NUM_FUNCTIONAL
        raise UserError(
            f"the corpus is too small for one stream: it has {tokens} tokens in "
            f"{manifest.statistics['documents']} documents, a segment needs {needed}: use more text or "
            f"a smaller --seq_len (now {manifest.seq_len})"
        )


def define_flags() -> None:
    """Defines one flag for each field of PretrainingOptions."""
    default = {field.name: field.default for field in dataclasses.fields(PretrainingOptions)}
    flags.DEFINE_list(
        "input",
        None,
        "corpus files or globs, plain or .gz, UTF-8: one sentence per line, a blank line between documents",
    )
    flags.DEFINE_string(
        "tokenizer",
        None,
        "SentencePiece model with XLNet's special symbols (run_scripts/train_tokenizer.py makes one)",
    )
    flags.DEFINE_string("output_dir", None, "folder for the records")
    flags.mark_flags_as_required(["input", "tokenizer", "output_dir"])
    flags.DEFINE_string("split", default["split"], "name of the set: the first word of its shards' names")
    flags.DEFINE_integer("seq_len", default["seq_len"], "tokens of a segment", lower_bound=7)
    flags.DEFINE_integer(
        "reuse_len",
        None,
        "leading tokens of a segment that go into the memory; the next segment "
        "starts after them. Default: seq_len / 2",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "num_predict", None, "targets of a segment. Default: seq_len * mask_beta / mask_alpha", lower_bound=1
    )
    flags.DEFINE_integer(
        "perm_size",
        None,
        "tokens of a block that is permuted by itself; divides reuse_len and "
        "seq_len - reuse_len. Default: reuse_len",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "objective",
        default["objective"],
        list(ranks.OBJECTIVES),
        "permutation (XLNet), autoregressive "
        "(every token predicted in natural order) or denoising (BERT's independent targets)",
    )
    flags.DEFINE_enum(
        "functional_tokens",
        default["functional_tokens"],
        list(ranks.FUNCTIONAL_TOKENS),
        "SEP and CLS take places in the order, unseen by context (the original), or are context",
    )
    flags.DEFINE_integer(
        "mask_alpha",
        default["mask_alpha"],
        "K of the paper: of each mask_alpha tokens, mask_beta are targets",
        lower_bound=1,
    )
    flags.DEFINE_integer("mask_beta", default["mask_beta"], "see mask_alpha", lower_bound=1)
    flags.DEFINE_enum(
        "span_mode",
        default["span_mode"],
        list(spans.SPAN_MODES),
        "targets are spans of whole words, spans of pieces, or single tokens",
    )
    flags.DEFINE_integer(
        "max_words", default["max_words"], "longest span, in words (or pieces)", lower_bound=1
    )
    flags.DEFINE_bool("bidirectional", default["bidirectional"], "write the text read backward, too")
    flags.DEFINE_integer(
        "num_passes",
        default["num_passes"],
        "times that the corpus is written, each time with other segments' partners, targets and orders",
        lower_bound=1,
    )
    flags.DEFINE_bool("lower", default["lower"], "lower-case the text")
    flags.DEFINE_bool("keep_accents", default["keep_accents"], "keep accents (the released models drop them)")
    flags.DEFINE_bool("use_eod", default["use_eod"], "write an <eod> token where a document ends")
    flags.DEFINE_string(
        "sentence_split",
        default["sentence_split"],
        "language code (en, de, zh, ...) if the corpus has "
        "paragraphs on its lines, which are to be split into sentences",
    )
    flags.DEFINE_integer(
        "stream_segments",
        default["stream_segments"],
        "longest stream: segments whose memory follows one another",
        lower_bound=1,
    )
    flags.DEFINE_float(
        "slice_mb", default["slice_mb"], "MB of text in a unit of work: one shard per pass", lower_bound=0.001
    )
    flags.DEFINE_integer("num_workers", None, "processes. Default: the cores of this machine", lower_bound=1)
    flags.DEFINE_integer(
        "seed", default["seed"], "same corpus, tokenizer, flags and seed: same bytes", lower_bound=0
    )
    flags.DEFINE_bool(
        "compat",
        default["compat"],
        "choose segments and targets as the original code does, its flaws included (slow)",
    )
    flags.DEFINE_bool("overwrite", default["overwrite"], "replace another build in output_dir")


def main(argv: Sequence[str]) -> None:
    del argv
    options = PretrainingOptions(
        **{field.name: flags.FLAGS[field.name].value for field in dataclasses.fields(PretrainingOptions)}
    )
    manifest = build_pretraining_records(options, progress=True)
    print(f"Pretraining records are ready:\n{summary(manifest)}")
    for warning in warnings(manifest):
        print(f"WARNING: {warning}")


if __name__ == "__main__":
    define_flags()
    errors.run(main)

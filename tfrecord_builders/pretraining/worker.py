"""The builder's job: one corpus shard -> one shard of records per pass.

A job depends only on its slice, settings and tokenizer, so any process anywhere writes the same bytes.
"""

import dataclasses
import functools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from tfrecord_builders.corpus import CorpusShard, Lines, read_lines
from tfrecord_builders.pretraining import compat_sampling
from tfrecord_builders.pretraining.dedup import fingerprints
from tfrecord_builders.pretraining.token_stream import TokenStream, tokenize
from xlnet_tf.errors import UserError
from xlnet_tf.records import ranks, segments, spans
from xlnet_tf.records.job_notes import JobNotes, are_intact
from xlnet_tf.records.manifest import Manifest, Shard, shard_name
from xlnet_tf.records.shards import ShardWriter
from xlnet_tf.records.spans import MAX_RUN, run_histogram, target_positions
from xlnet_tf.records.spec import BACKWARD, FORWARD, MAX_STREAMS_PER_SHARD, stream_id
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.marks import count_dropped_marks
from xlnet_tf.text.tokenizer import XLNetTokenizer

DONE_SUFFIX = ".done.json"  # of a shard's completion note, next to it; the manifest replaces the notes


@dataclasses.dataclass(frozen=True)
class Job:
    """One job: a manifest's settings and folder, without shards, and those of an earlier finished set."""

    manifest: Manifest
    corpus_shard: CorpusShard
    earlier: Mapping[int, Shard]


def read_note(folder: epath.Path, shard_file: str) -> Shard | None:
    """Reads a shard's completion note; None if it is missing or damaged."""
    try:
        values = JobNotes(folder, suffix=DONE_SUFFIX).read(shard_file)
        return values and Shard(**values)
    except TypeError:  # of fields that a shard does not have
        return None


def build_job(job: Job) -> dict[str, Any]:
    """Writes the shards of a job, one per pass, unless they are there; the text is tokenized once.

    Returns the shards by pass, as json values; `built`, how many are new; and fingerprints of the documents,
    unless they have been compared before.
    """
    manifest, notes = job.manifest, JobNotes(job.manifest.folder, suffix=DONE_SUFFIX)
    lines = read_lines(job.corpus_shard)
    shards = _finished_shards(job, lines.text_sha256)
    missing = [index for index in range(manifest.num_passes) if index not in shards]
    if missing:
        tokenizer = _load_tokenizer(str(manifest.tokenizer_path), CleaningConfig(**manifest.cleaning))
        stream, text_statistics = tokenize(tokenizer, lines.lines, manifest.use_eod, manifest.sentence_split)
        text_statistics["bytes"] = lines.num_bytes
        text_statistics |= _document_statistics(manifest, job.corpus_shard, lines, stream)
        directions = {FORWARD: stream}
        if "backward" in manifest.directions:
            directions[BACKWARD] = stream.reversed()
        for index in missing:
            shard = _build_shard(manifest, tokenizer, job.corpus_shard.index, index, directions)
            shards[index] = dataclasses.replace(
                shard, text_sha256=lines.text_sha256, statistics={"text": text_statistics, **shard.statistics}
            )
            notes.write(shard.file, dataclasses.asdict(shards[index]))
    return {
        "shards": [dataclasses.asdict(shards[index]) for index in range(manifest.num_passes)],
        "built": len(missing),
        "fingerprints": [] if job.corpus_shard.selection else fingerprints(lines.documents_text()),
    }


def _document_statistics(
    manifest: Manifest, corpus_shard: CorpusShard, lines: Lines, stream: TokenStream
) -> dict[str, Any]:
    """Accounts for the documents; one in several corpus shards counts where it begins."""
    lengths = np.diff(np.append(stream.document_starts, len(stream.tokens)))
    dropped = {"empty": 0, "duplicate": 0, "other_set": 0}
    if corpus_shard.selection:
        dropped["duplicate"] = corpus_shard.selection.duplicates
        dropped["other_set"] = corpus_shard.selection.other_set
    documents_in = lines.documents + lines.empty_documents
    documents = len(lengths) - lines.takes_rest
    dropped["empty"] = documents_in - documents - sum(dropped.values())  # or without a token
    short = lengths < manifest.seq_len - segments.NUM_SPECIAL
    return {
        "documents_in": documents_in,
        "documents_dropped": dropped,
        "documents_continued": int(lines.takes_rest),
        "short_documents": int(np.count_nonzero(short)),
        "short_document_tokens": int(lengths[short].sum()),
        "dropped_marks": {} if manifest.cleaning["keep_accents"] else count_dropped_marks(lines.lines),
        "nul_bytes": lines.nul_bytes,
    }


def is_finished(job: Job) -> bool:
    """Returns whether all shards of a corpus shard exist for the same text; writes nothing."""
    return len(_finished_shards(job, read_lines(job.corpus_shard).text_sha256)) == job.manifest.num_passes


def _finished_shards(job: Job, text_sha256: str) -> dict[int, Shard]:
    """Returns pass -> shard for existing shards of this text."""
    folder = job.manifest.folder
    shards = {}
    for index in range(job.manifest.num_passes):
        name = shard_name(job.manifest.split, index, job.corpus_shard.index)
        shard = read_note(folder, name) or job.earlier.get(index)
        is_it = shard and (shard.file, shard.text_sha256) == (name, text_sha256)
        if is_it and are_intact(folder, {name: shard.sha256}):
            shards[index] = shard
    return shards


def _build_shard(
    manifest: Manifest,
    tokenizer: XLNetTokenizer,
    slice_index: int,
    pass_index: int,
    directions: Mapping[int, TokenStream],
) -> Shard:
    """Writes the records of a corpus shard for one pass: its forward streams, then its backward streams."""
    name = shard_name(manifest.split, pass_index, slice_index)
    counts = {FORWARD: 0, BACKWARD: 0}
    streams = 0
    tokens, runs, targets = [], np.zeros(MAX_RUN, np.int64), 0
    with ShardWriter(manifest.folder / name, manifest.spec) as writer:
        for direction, stream in directions.items():
            entropy = [manifest.seed, pass_index, slice_index, int(direction == BACKWARD)]
            cut, is_target = _cut(manifest, tokenizer, stream, direction, np.random.SeedSequence(entropy))
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([*entropy, 1])))
            columns = _columns(manifest, rng, stream, cut, is_target, direction)
            columns["stream"] += stream_id(pass_index, slice_index, streams)
            writer.write(columns)
            counts[direction] = len(cut)
            streams += -(-len(cut) // manifest.stream_segments)
            if streams > MAX_STREAMS_PER_SHARD:
                raise UserError(
                    f"corpus shard {slice_index} has {streams} streams, expected at most "
                    f"{MAX_STREAMS_PER_SHARD}: use a smaller --slice_mb or a larger --stream_segments"
                )
            tokens.append(
                {"pass": pass_index, "direction": direction, **_account(stream, cut, manifest.reuse_len)}
            )
            runs += run_histogram(is_target)
            targets += int(is_target.sum())
    return Shard(
        file=name,
        pass_index=pass_index,
        slice_index=slice_index,
        forward_segments=counts[FORWARD],
        backward_segments=counts[BACKWARD],
        bytes=writer.num_bytes,
        sha256=writer.sha256,
        text_sha256="",
        statistics={"tokens": tokens, "targets": targets, "target_runs": runs.tolist()},
    )


def _cut(manifest, tokenizer, stream, direction, seeds):
    """Cuts a stream into segments and chooses their targets; returns (Segments, bool [S, T])."""
    spec = manifest.spec
    if manifest.compat:
        cuts, masks = (int(state) for state in seeds.generate_state(2))
        return compat_sampling.segments_and_targets(
            random.Random(cuts),
            np.random.RandomState(masks),
            stream.tokens,
            stream.sentence_ends,
            spec.seq_len,
            spec.reuse_len,
            spec.num_predict,
            piece_starts=tokenizer.original_word_starts,
            alpha=manifest.mask["alpha"],
            beta=manifest.mask["beta"],
            max_words=manifest.mask["max_words"],
            reverse=direction == BACKWARD,
        )
    rng = np.random.Generator(np.random.Philox(seeds))
    cut = segments.sample_segments(
        rng, stream.tokens, stream.sentence_ends, spec.seq_len, spec.reuse_len, stream.word_start
    )
    if manifest.objective == "autoregressive":
        return cut, ~cut.special
    targets = spans.sample_segment_targets(rng, cut, spec.reuse_len, spec.num_predict, **manifest.mask)
    return cut, targets


def _columns(manifest, rng, stream, cut, is_target, direction) -> dict[str, np.ndarray]:
    """Returns the columns of a direction's records; streams are numbered from 0."""
    spec = manifest.spec
    count = len(cut)
    stream_number, segment = np.divmod(np.arange(count), manifest.stream_segments)
    begin = np.arange(count) * spec.reuse_len
    document = stream.document_starts[np.searchsorted(stream.document_starts, begin, side="right") - 1]
    return {
        "input_ids": cut.ids,
        "segment_ids": cut.segment_ids,
        "permutation_rank": ranks.sample_ranks(
            rng,
            is_target,
            cut.special,
            objective=manifest.objective,
            reuse_len=spec.reuse_len,
            perm_size=manifest.perm_size,
            functional_tokens=manifest.functional_tokens,
        ),
        "target_positions": target_positions(is_target, spec.num_predict),
        "direction": np.full(count, direction),
        "next_sentence": cut.next_sentence,
        "stream": stream_number,
        "segment": segment,
        "document_offset": begin - np.maximum(document, begin - segment * spec.reuse_len),
    }


def _account(stream: TokenStream, cut: segments.Segments, reuse_len: int) -> dict[str, Any]:
    total = len(stream.tokens)
    written = np.zeros(total + 1, bool)
    written[: len(cut) * reuse_len] = True  # the reused parts follow one another
    written[cut.source_positions[:, reuse_len:]] = True  # -1, the special tokens, goes to the extra slot
    count = int(np.count_nonzero(written[:total]))
    reason = "after_last_segment" if len(cut) else "slice_shorter_than_a_segment"
    return {"in": total, "written": count, "dropped": {reason: total - count}}


@functools.lru_cache(maxsize=1)
def _load_tokenizer(path: str, cleaning: CleaningConfig) -> XLNetTokenizer:
    return XLNetTokenizer(model_file=path, cleaning=cleaning)

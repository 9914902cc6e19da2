"""Recounts the manifest's statistics of a shard: its targets, and its text and tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfrecord_builders.inspection.recovered_text import (
    RecoveredText,
    chunks,
    contiguous,
    halves,
    source_positions,
)
from xlnet_tf.records import segments
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.spans import run_lengths, target_flags
from xlnet_tf.records.spec import FORWARD
from xlnet_tf.text.special_tokens import UNK_ID


def broken_statistics(
    manifest: Manifest,
    shard: Shard,
    columns: Mapping[str, np.ndarray],
    text: RecoveredText,
    word_starts: np.ndarray,
) -> Iterator[tuple[str, Any, Any]]:
    """Yields (statistic, manifest's value, recounted value) where they differ in a sound shard."""
    statistics = shard.statistics
    runs = [
        run_lengths(target_flags({n: v[c] for n, v in columns.items()})) for c in chunks(range(shard.records))
    ]
    runs = np.concatenate([np.zeros(0, int), *runs])
    said = statistics["target_runs"]
    counted = {
        "targets": int(runs.sum()),
        "target_runs": np.bincount(np.minimum(runs, len(said)) - 1, minlength=len(said)).tolist(),
        **{f"text.{name}": value for name, value in _count_text(manifest, text, word_starts).items()},
    }
    said = {**statistics, **{f"text.{name}": value for name, value in statistics["text"].items()}}
    for name, value in counted.items():
        if name in said and said[name] != value:
            yield name, said[name], value
    parts = dict(halves(shard))
    for entry in statistics["tokens"]:
        part = parts.get(entry["direction"], range(0))
        name = f"tokens of direction {entry['direction']}"
        if entry["pass"] != shard.pass_index or entry["direction"] not in parts:
            yield (
                f"{name}, pass {entry['pass']}",
                "there",
                f"pass {shard.pass_index}, directions {list(parts)}",
            )
        accounted = entry["written"] + sum(entry["dropped"].values())
        if entry["in"] != accounted or entry["in"] != len(text.tokens):
            yield f"{name}: in", entry["in"], f"{len(text.tokens)}, and {accounted} written and dropped"
        room = segments.num_segments(entry["in"], manifest.seq_len, manifest.reuse_len)
        if len(part) > room or (len(part) < room and not manifest.compat):
            yield f"{name}: records of {entry['in']} tokens", len(part), room
        # What B brings from elsewhere may come on top.
        least = _covered(manifest, columns, part)
        if not least <= entry["written"] <= entry["in"]:
            yield f"{name}: written", entry["written"], f"{least} to {entry['in']}"


def _count_text(manifest: Manifest, text: RecoveredText, word_starts: np.ndarray) -> dict[str, Any]:
    """Returns statistics of the recovered text of a corpus shard; {} if it is incomplete."""
    tokens = text.tokens
    if not text.known or not len(tokens):
        return {}
    counts = {
        "tokens": len(tokens),
        "unknown": int((tokens == UNK_ID).sum()),
        "word_starts": int(word_starts[tokens].sum()),
    }
    if manifest.use_eod:
        lengths = np.diff(np.append(text.document_starts[FORWARD], len(tokens)))
        powers = 1 << np.log2(lengths).astype(int)
        counts["documents"] = len(lengths)
        counts["document_lengths"] = {str(n): int((powers == n).sum()) for n in np.unique(powers)}
        short = lengths < manifest.seq_len - segments.NUM_SPECIAL
        counts["short_documents"] = int(short.sum())
        counts["short_document_tokens"] = int(lengths[short].sum())
    return counts


def _covered(manifest: Manifest, columns: Mapping[str, np.ndarray], part: range) -> int:
    """Returns how many tokens from the text's start on are in the records of a direction."""
    last = slice(max(part.start, part.stop - manifest.seq_len), part.stop)  # those before do not reach as far
    number = np.arange(last.start, last.stop) - part.start
    where = source_positions(
        columns["input_ids"][last], contiguous(manifest, columns)[last], number, manifest.reuse_len
    )
    return int(where.max(initial=-1)) + 1

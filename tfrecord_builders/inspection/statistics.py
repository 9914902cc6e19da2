"""Contents of a set of pretraining records: its manifest's statistics and recounts, as tables."""

import collections
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrecord_builders.common import runners
from tfrecord_builders.inspection.field_names import plain
from tfrecord_builders.inspection.recovered_text import a_lengths, chunks, halves
from tfrecord_builders.pretraining import report as pretraining_report
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.segments import NUM_SPECIAL
from xlnet_tf.records.shards import read_shard
from xlnet_tf.records.spans import target_flags
from xlnet_tf.records.spec import BACKWARD
from xlnet_tf.text.tokenizer import XLNetTokenizer

WIDEST = 60  # characters of a bar
_TEXT = (
    "bytes",
    "characters",
    "sentences",
    "documents_in",
    "documents",
    "duplicate_documents",
    "short_documents",
    "short_document_tokens",
    "tokens",
    "unknown",
    "unknown_rate",
    "word_starts",
    "word_start_rate",
)  # of the text's statistics, in this order


def count(manifest: Manifest, num_workers: int = 1, progress: bool = False) -> dict[str, Any]:
    """Counts the contents of a set.

    Returns:
        Values of json's types. set: its size; text: the statistics of its text; readings: for each pass and
        direction how much was read and written, and properties of its records; a_lengths, b_lengths:
        tokens -> records; target_density: share of targets by position; spans: words of a span -> spans (in
        tokens where the set's spans are); expected_spans: words -> share, P(n) ~ 1/n; warnings.
    """
    manifest.check_files()
    tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
    bare = dataclasses.replace(manifest, shards=(), statistics={})  # each job takes it to its worker
    count_shard = functools.partial(_count_shard, bare, tokenizer.word_starts)
    totals = _Totals(manifest)
    with ProgressBar(total=manifest.records, unit="record", unit_scale=True, disable=not progress) as bar:
        for shard, counted in runners.run_jobs(count_shard, manifest.shards, num_workers=num_workers):
            totals.add(shard, counted)
            bar.update(shard.records)
    shown = ("split", "objective", "seq_len", "reuse_len", "num_predict", "records", "record_bytes")
    return {
        "set": {
            "folder": str(manifest.folder),
            "span_mode": manifest.mask["span_mode"],
            **{name: getattr(manifest, name) for name in shown},
            "streams_a_pass": manifest.num_streams,
            "shards": len(manifest.shards),
            "bytes": sum(shard.bytes for shard in manifest.shards),
        },
        "text": {
            name: value
            for name, value in manifest.statistics.items()
            if not name.startswith("tokens_") and name not in ("targets", "target_runs")
        },
        **totals.to_dict(),
        "expected_spans": expected_spans(manifest),
        "warnings": pretraining_report.warnings(manifest),
    }


class _Totals:
    """The sums of `_count_shard` over all shards."""

    def __init__(self, manifest: Manifest):
        self._manifest = manifest
        self._readings = collections.defaultdict(collections.Counter)
        self._fewest: dict[tuple[int, int], int] = {}  # targets of a record, by pass and direction
        self._histograms = {name: collections.Counter() for name in ("a_lengths", "b_lengths", "spans")}
        self._targets = np.zeros(manifest.seq_len, np.int64)

    def add(self, shard: Shard, counted: Mapping[str, Any]) -> None:
        for direction, values in counted["readings"]:
            key = shard.pass_index, direction
            fewest = self._fewest.get(key, self._manifest.num_predict)
            self._fewest[key] = min(fewest, values.pop("fewest"))
            self._readings[key].update(values)
        for name, counts in self._histograms.items():
            counts.update(dict(counted[name]))
        self._targets += counted["targets"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "readings": [
                _reading(self._manifest, key, {**self._readings[key], "fewest": self._fewest[key]})
                for key in sorted(self._readings, key=lambda key: (key[0], -key[1]))
            ],
            "a_lengths": _by_number(self._histograms["a_lengths"]),
            "b_lengths": _by_number(self._histograms["b_lengths"]),
            "target_density": (self._targets / max(self._manifest.records, 1)).tolist(),
            "spans": _by_number(self._histograms["spans"]),
        }


def _by_number(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(number): counts[number] for number in sorted(counts)}


def expected_spans(manifest: Manifest) -> dict[str, float]:
    """Returns words of a span -> expected share of spans; empty where no spans were drawn."""
    if manifest.objective == "autoregressive":
        return {}
    most = 1 if manifest.mask["span_mode"] == "single" else manifest.mask["max_words"]
    weights = 1 / np.arange(1, most + 1)
    return {str(n): weight for n, weight in enumerate((weights / weights.sum()).tolist(), 1)}


def _reading(manifest: Manifest, key: tuple[int, int], values: Mapping[str, int]) -> dict[str, Any]:
    """Returns the figures of one pass in one direction."""
    records, targets = max(values["records"], 1), max(values["targets"], 1)
    entries = manifest.statistics.get("tokens_by_pass", [])
    tokens = next((entry for entry in entries if (entry["pass"], entry["direction"]) == key), {})
    return {
        "pass": key[0],
        "direction": key[1],
        "records": values["records"],
        "streams": values["streams"],
        "tokens_in": tokens.get("in"),
        "tokens_written": tokens.get("written"),
        "tokens_dropped": tokens.get("dropped"),
        "targets_a_record": values["targets"] / records,
        "fewest_targets": values["fewest"],
        "targets_in_first_part": values["first_part"] / targets,
        "seen_by_a_target": values["seen"] / targets / manifest.seq_len,
        "next_sentence": values["next_sentence"] / records,
        "a_tokens": values["a_tokens"] / records,
        "b_tokens": values["b_tokens"] / records,
    }


def _count_shard(manifest: Manifest, word_starts: np.ndarray, shard: Shard) -> dict[str, Any]:
    """Counts the records of a shard, as json values."""
    columns = read_shard(manifest.path(shard), manifest.spec)
    readings, targets = [], np.zeros(manifest.seq_len, np.int64)
    spans: list[np.ndarray] = [np.zeros(0, np.int64)]
    a_len = a_lengths(columns["input_ids"], manifest.reuse_len)
    b_len = manifest.seq_len - manifest.reuse_len - NUM_SPECIAL - a_len
    for direction, part in halves(shard):
        if not len(part):
            continue
        values = collections.Counter(
            records=len(part),
            streams=len(np.unique(columns["stream"][part])),
            next_sentence=int((columns["next_sentence"][part] == 1).sum()),
            a_tokens=int(a_len[part].sum()),
            b_tokens=int(b_len[part].sum()),
        )
        fewest = manifest.num_predict
        for chunk in chunks(part):
            some = {name: column[chunk] for name, column in columns.items()}
            is_target = target_flags(some)
            targets += is_target.sum(axis=0)
            values["targets"] += int(is_target.sum())
            values["first_part"] += int(is_target[:, : manifest.reuse_len].sum())
            values["seen"] += int(_seen(some["permutation_rank"], is_target).sum())
            fewest = min(fewest, int(is_target.sum(axis=1).min()))
            spans.append(_span_lengths(manifest, word_starts, some["input_ids"], is_target, direction))
        values["fewest"] = fewest
        readings.append((direction, dict(values)))
    numbers, counts = np.unique(np.concatenate(spans), return_counts=True)
    return {
        "readings": readings,
        "targets": targets.tolist(),
        "spans": list(zip(numbers.tolist(), counts.tolist(), strict=True)),
        "a_lengths": list(enumerate(np.bincount(a_len).tolist())),
        "b_lengths": list(enumerate(np.bincount(np.maximum(b_len, 0)).tolist())),
    }


def _seen(rank: np.ndarray, is_target: np.ndarray) -> np.ndarray:
    """Returns int [targets], how many positions the query stream at each target sees: those of lower rank."""
    ordered = np.sort(rank, axis=1)
    row, position = np.nonzero(is_target)
    width = int(ordered.max(initial=0)) + 1
    offset = np.arange(len(rank))[:, None] * width
    return (
        np.searchsorted((ordered + offset).ravel(), rank[row, position] + row * width) - row * rank.shape[1]
    )


def _span_lengths(
    manifest: Manifest, word_starts: np.ndarray, ids: np.ndarray, is_target: np.ndarray, direction: int
) -> np.ndarray:
    """Returns int [...], the length of each run of targets in a part, in words or the set's span unit."""
    row, position = np.nonzero(is_target)
    begins = (np.diff(position, prepend=-2) != 1) | (np.diff(row, prepend=-1) != 0)
    begins |= position == manifest.reuse_len
    if manifest.mask["span_mode"] == "words":
        starts = word_starts[ids]
        if direction == BACKWARD:
            starts = np.roll(starts, 1, axis=1)  # the last token of a word comes first
        begins_word = starts[row, position] | begins
    else:
        begins_word = np.ones(len(row), bool)
    run = np.flatnonzero(begins)
    return np.add.reduceat(begins_word, run, dtype=np.int64) if len(run) else np.zeros(0, np.int64)


def table(statistics: Mapping[str, Any]) -> str:
    this, text = statistics["set"], statistics["text"]
    lines = [
        this["folder"],
        f"{this['records']:,} records of {this['seq_len']} tokens ({this['reuse_len']} reused) in "
        f"{this['streams_a_pass']:,} streams a pass, {this['shards']} shard{'s' * (this['shards'] > 1)}, "
        f"{this['bytes'] / 1e6:,.1f} MB",
        f"objective {this['objective']}, {this['num_predict']} targets a record, spans: {this['span_mode']}",
        "",
        "text",
        *(
            f"  {plain(name):<34}{text[name]:>16,{'.4f' if isinstance(text[name], float) else ''}}"
            for name in _TEXT
            if name in text
        ),
    ]
    lines += ["", "each pass in each direction", *_columns(statistics["readings"])]
    if text.get("document_lengths"):
        lines += [
            "",
            "documents by their length in tokens",
            *_bars(text["document_lengths"], "from {} tokens on"),
        ]
    spans, expected = statistics["spans"], statistics["expected_spans"]
    total = sum(spans.values())
    if expected:
        unit = "words" if this["span_mode"] == "words" else "tokens"
        lines += [
            "",
            f"spans of targets, in {unit} (drawn as P(n) ~ 1/n; the last one of a part is cut)",
            f"  {unit:>6}{'spans':>14}{'share':>10}{'drawn as':>10}",
        ]
        for n in sorted({*spans, *expected}, key=int):
            drawn = f"{expected[n]:.1%}" if n in expected else "-"
            found = spans.get(n, 0)
            lines.append(f"  {n:>6}{found:>14,}{found / max(total, 1):>10.1%}{drawn:>10}")
    density = statistics["target_density"]
    sixteenth = max(1, len(density) // 16)
    parts = {str(i): float(np.mean(density[i : i + sixteenth])) for i in range(0, len(density), sixteenth)}
    lines += ["", "share of targets by position", *_bars(parts, "from position {}", "{:.1%}")]
    lines += [f"\nWARNING: {warning}" for warning in statistics["warnings"]]
    return "\n".join(lines)


def _columns(readings: list[dict[str, Any]]) -> list[str]:
    """Formats readings side by side, with a row for each figure."""
    shares = ("targets_in_first_part", "seen_by_a_target", "next_sentence")

    def shown(name, value):
        if value is None:
            return "not known"
        if name == "tokens_dropped":
            return f"{sum(value.values()):,}"
        if name == "direction":
            return "forward" if value == 1 else "backward"
        return (
            f"{value:.1%}" if name in shares else f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
        )

    lines = []
    for first in range(0, len(readings), 6):
        some = readings[first : first + 6]
        for name in some[0]:
            lines.append(f"  {plain(name):<34}" + "".join(f"{shown(name, r[name]):>14}" for r in some))
        reasons = collections.Counter()
        for reading in some:
            reasons.update(reading["tokens_dropped"] or {})
        if reasons:
            lines.append(
                "  in no record: " + ", ".join(f"{n:,} {plain(reason)}" for reason, n in reasons.items())
            )
    return lines


def _bars(values: Mapping[str, float], label: str, number: str = "{:,}") -> list[str]:
    most = max(values.values(), default=0) or 1
    return [
        f"  {label.format(name):<34}{number.format(value):>12} {'#' * round(WIDEST * value / most)}"
        for name, value in values.items()
    ]

"""Compares two sets of pretraining records: settings, statistics, and record by record."""

import collections
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrecord_builders.inspection.field_names import plain
from tfrecord_builders.inspection.show import marked, visible_piece, wrapped
from xlnet_tf.differences import nested_differences
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import read_shard
from xlnet_tf.records.spans import target_flags
from xlnet_tf.records.spec import stream_name
from xlnet_tf.text.tokenizer import XLNetTokenizer


def compare(first: Manifest, second: Manifest, progress: bool = False) -> dict[str, Any]:
    """Compares two sets.

    Shards are paired by pass and corpus shard. Where both have the same text and equally many records of the
    same lengths, their records are compared one by one.

    Returns:
        Values of json's types. same: whether all is; settings, statistics: name -> [first's, second's], where
        they differ; shards: how many are the same, differ, could not be compared or are in one set only;
        records: how many were compared and differ; columns: name -> the records and the share of values that
        differ; example: the first record that differs, with pieces.
    """
    first.check_files()
    second.check_files()
    shards = _ShardComparison(first, second)
    with ProgressBar(first.shards, unit="shard", disable=not progress) as bar:
        for shard in bar:
            shards.add(shard)
    result = {
        "first": str(first.folder),
        "second": str(second.folder),
        "settings": _differences(first.settings(), second.settings()),
        "statistics": _differences(first.statistics, second.statistics),
        **shards.to_dict(),
    }
    result["same"] = not result["settings"] and set(result["shards"]) <= {"same"}
    return result


class _ShardComparison:
    """Compares the shards of two sets, one of the first set at a time."""

    def __init__(self, first: Manifest, second: Manifest):
        self._sets = first, second
        self._others = {(shard.pass_index, shard.slice_index): shard for shard in second.shards}
        self._same_lengths = (first.seq_len, first.reuse_len) == (second.seq_len, second.reuse_len)
        self._shards, self._records = collections.Counter(), collections.Counter()
        self._columns = collections.defaultdict(lambda: {"records": 0, "values": 0, "of": 0})
        self._example: dict[str, Any] | None = None

    def add(self, shard: Shard) -> None:
        other = self._others.pop((shard.pass_index, shard.slice_index), None)
        text_of = operator.attrgetter("text_sha256", "forward_segments", "backward_segments")
        if other is None:
            self._shards["only in the first"] += 1
        elif shard.sha256 == other.sha256:
            self._shards["same"] += 1
        elif not self._same_lengths or text_of(shard) != text_of(other):
            self._shards["not comparable: of another text, or records of other lengths"] += 1
        else:
            self._shards["different"] += 1
            self._compare(shard, other)

    def _compare(self, shard: Shard, other: Shard) -> None:
        pair = [_columns(manifest, each) for manifest, each in zip(self._sets, (shard, other))]
        differs = _compare_columns(*pair, self._columns)
        self._records.update(compared=len(differs), different=int(differs.sum()))
        if self._example is None and differs.any():
            self._example = _example(self._sets, (shard, other), pair, int(differs.argmax()))

    def to_dict(self) -> dict[str, Any]:
        counts = self._shards + collections.Counter({"only in the second": len(self._others)})
        return {
            "shards": dict(counts),
            "records": {name: self._records[name] for name in ("compared", "different")},
            "columns": {
                name: {"records": counts["records"], "share_of_values": counts["values"] / counts["of"]}
                for name, counts in self._columns.items()
                if counts["records"]
            },
            "example": self._example,
        }


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: values for name, *values in nested_differences(first, second)}


def _columns(manifest: Manifest, shard: Shard) -> dict[str, np.ndarray]:
    """Reads a shard, with targets as flags, which do not depend on the number of slots."""
    columns = read_shard(manifest.path(shard), manifest.spec)
    flags = target_flags(columns)
    del columns["target_positions"]
    return {**columns, "targets": flags}


def _compare_columns(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], counts: dict[str, dict[str, int]]
) -> np.ndarray:
    """Adds to the counts of each column; returns bool [S], the records that differ."""
    different = np.zeros(len(first["segment"]), bool)
    for name, values in first.items():
        differs = (values != second[name]).reshape(len(values), -1)
        counts[name]["records"] += int(differs.any(axis=1).sum())
        counts[name]["values"] += int(differs.sum())
        counts[name]["of"] += differs.size
        different |= differs.any(axis=1)
    return different


def _example(sets, shards, pair, record: int) -> dict[str, Any]:
    """Describes a record of both sets: in which columns and where it differs, and its pieces."""
    rows = [{name: values[record] for name, values in columns.items()} for columns in pair]
    where = {}
    for name in rows[0]:
        differs = np.atleast_1d(rows[0][name] != rows[1][name])
        if differs.any():
            position = int(differs.argmax())
            values = [np.atleast_1d(row[name])[position].item() for row in rows]
            where[name] = {"positions": int(differs.sum()), "first": position, "values": values}
            if name == "stream":
                where[name]["names"] = [stream_name(row[name].item(), row["direction"]) for row in rows]
    pieces = []
    for manifest, row in zip(sets, rows, strict=True):
        tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
        pieces.append([visible_piece(tokenizer.id_to_piece(int(i))) for i in row["input_ids"]])
    return {
        "shard": shards[0].file,
        "record": record,
        "columns": where,
        "pieces": pieces,
        "targets": [np.flatnonzero(row["targets"]).tolist() for row in rows],
    }


def table(result: Mapping[str, Any]) -> str:
    lines = [f"first:  {result['first']}", f"second: {result['second']}"]
    lines += ["", f"settings: {'' if result['settings'] else 'same'}"]  # by the names of their flags
    lines += [f"  {name}: {_short(a)} | {_short(b)}" for name, (a, b) in result["settings"].items()]
    lines += ["", f"statistics: {'' if result['statistics'] else 'same'}"]
    lines += [
        f"  {plain(name)}: {_number(a)} | {_number(b)}" for name, (a, b) in result["statistics"].items()
    ]
    lines += ["", "shards: " + ", ".join(f"{count:,} {name}" for name, count in result["shards"].items())]
    if result["records"]["compared"]:
        lines.append(
            f"records of the different shards: {result['records']['compared']:,} compared, "
            f"{result['records']['different']:,} differ"
        )
        lines += [
            f"  {plain(name):<32}{counts['records']:>12,} records, {counts['share_of_values']:.2%} of values"
            for name, counts in result["columns"].items()
        ]
    if example := result["example"]:
        lines += ["", f"the first that differs: {example['shard']}, record {example['record']}"]
        lines += [
            f"  {plain(name)}: {' | '.join(map(str, where.get('names', where['values'])))} at position "
            f"{where['first']}, {where['positions']} positions in all"
            for name, where in example["columns"].items()
        ]
        for name, pieces, targets in zip(
            ("first", "second"), example["pieces"], example["targets"], strict=True
        ):
            chosen = set(targets)
            lines += [f"  {name}, targets as [piece]:"]
            lines += wrapped([marked(piece, i in chosen, False) for i, piece in enumerate(pieces)])
    lines += ["", "the sets are the same" if result["same"] else "the sets differ"]
    return "\n".join(lines)


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else _short(value)


def _short(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{len(value)} entries (--json has them)"
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."

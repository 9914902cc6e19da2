"""Reports on sets of examples before training: as a table, as json and as a picture."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfrecord_builders.common.example_builder import SPLITS
from tfrecord_builders.inspection.plot_distributions import BLUE
from xlnet_tf import figures, files
from xlnet_tf.records import example_report
from xlnet_tf.records.example_report import Found
from xlnet_tf.records.examples import ExampleSet, option_letters
from xlnet_tf.records.input_counts import PIECES, UNKNOWN_PIECES

_BINS = 32
_MOST_LABELS = 20  # with more, the table and the picture have the most frequent ones


def load(folder: str) -> dict[str, ExampleSet]:
    """Loads the sets of a folder of splits, or a single set: split -> set."""
    splits = [path.name for path in files.entries(folder) if (path / "manifest.json").exists()]
    if not splits:
        examples = ExampleSet.load(folder)
        return {examples.split: examples}
    ordered = sorted(
        splits, key=lambda split: (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)
    )
    return {split: ExampleSet.load(f"{folder}/{split}") for split in ordered}


def report(sets: Mapping[str, ExampleSet]) -> dict[str, Any]:
    """Counts the contents of sets by split.

    Returns:
        split -> examples; tokens (median, p99, longest, of a row); full_rows; labels (name -> examples or
        words); cut and skipped (what -> how many); pieces and unknown; repeated, repeated_otherwise (with
        another label) and shared (with train), each with count, the number of inputs, and the first examples.
    """
    shared = example_report.find_shared(sets)
    reports = {}
    for split, examples in sets.items():
        lengths = examples.lengths()
        repeated, otherwise = _repeated(examples)
        statistics = examples.statistics
        reports[split] = {
            "examples": examples.records,
            "tokens": {
                "median": int(np.median(lengths)) if len(lengths) else 0,
                "p99": int(np.percentile(lengths, 99)) if len(lengths) else 0,
                "longest": int(lengths.max(initial=0)),
                "of": examples.seq_len,
                "histogram": np.histogram(lengths, _BINS, (0, examples.seq_len))[0].tolist(),
            },
            "full_rows": int((lengths == examples.seq_len).sum()),
            "labels": labels(examples),
            "cut": {name: count for name, count in statistics.items() if "cut" in name.split()},
            "skipped": {reason: entry["count"] for reason, entry in examples.skipped.items()},
            "pieces": statistics.get(PIECES, 0),
            "unknown": statistics.get(UNKNOWN_PIECES, 0),
            "repeated": _described(examples, repeated),
            "repeated_otherwise": _described(examples, otherwise),
            "shared": _described(examples, shared[split]) if split in shared else None,
        }
    return reports


def labels(examples: ExampleSet) -> dict[str, int]:
    """Counts the examples, or words, of each label; empty for numbers and unknown labels."""
    names, columns = examples.settings.get("labels") or [], {column[0] for column in examples.columns}
    if "relevance" in columns:
        grades = examples.column("relevance")
        values, counts = np.unique(grades[grades >= 0], return_counts=True)
        return {f"relevance {value}": int(count) for value, count in zip(values, counts)}
    if "is_impossible" in columns:
        impossible = int(examples.column("is_impossible").sum())
        return {"windows with the answer": examples.records - impossible, "windows without": impossible}
    if "tags" in columns:
        values = examples.column("tags")
    elif "label" in columns and examples.settings.get("kind") != "regression":
        values = examples.column("label")
        names = names or option_letters(examples.sequences)
    else:
        return {}
    if examples.settings.get("kind") == "multi_label":
        counts = (values == 1).sum(axis=0)
    else:
        counts = np.bincount(values[values >= 0], minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts)}


def _repeated(examples: ExampleSet) -> tuple[Found, Found]:
    """Returns the inputs that repeat an earlier one, and those of them with another label."""
    has_class = examples.sequences == 1 and any(column[0] == "label" for column in examples.columns)
    answers = [np.asarray(value).tobytes() for value in examples.column("label")] if has_class else []
    seen: dict[int, int] = {}
    again, otherwise, total = [], [], 0
    for number, value in example_report.numbered_inputs(examples):
        total += 1
        if (first := seen.setdefault(value, number)) != number:
            again.append(number)
            if has_class and answers[first] != answers[number]:
                otherwise.append(number)
    shown = example_report.SHOWN
    return Found(len(again), total, again[:shown]), Found(len(otherwise), total, otherwise[:shown])


def _described(examples: ExampleSet, found: Found) -> dict[str, Any]:
    first = example_report.describe(examples, found.first)
    return {
        "count": found.count,
        "of": found.total,
        "first": [{"id": name, "text": text} for name, text in first],
    }


def rows(reports: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns a report's table: a name and a cell of each split."""
    splits = list(reports.values())
    lines: list[tuple[str, ...]] = []

    def add(name: str, cell: Callable[[Mapping[str, Any]], str]) -> None:
        lines.append((name, *map(cell, splits)))

    add("examples", lambda split: f"{split['examples']:,}")
    for name, shown in (("median", "median"), ("p99", "99 %"), ("longest", "longest")):
        add(f"tokens, {shown}", lambda split, name=name: f"{split['tokens'][name]:,}")
    add("tokens of a row", lambda split: f"{split['tokens']['of']:,}")
    add("full rows", lambda split: _part(split["full_rows"], split["examples"]))
    for kind, before in (("cut", ""), ("skipped", "skipped: ")):
        for name in dict.fromkeys(name for split in splits for name in split[kind]):
            add(f"{before}{name}", lambda split, kind=kind, name=name: f"{split[kind].get(name, 0):,}")
    add("pieces unknown (<unk>)", lambda split: _part(split["unknown"], split["pieces"]))
    of_labels = [split["labels"] for split in splits]
    counts = {name: max(labels.get(name, 0) for labels in of_labels) for name in itertools.chain(*of_labels)}
    for name in sorted(counts, key=counts.get, reverse=True)[:_MOST_LABELS]:
        cells = (_part(each.get(name, 0), sum(each.values())) if each else "-" for each in of_labels)
        lines.append((f"label {name}", *cells))
    for key, name in (
        ("repeated", "inputs that came before"),
        ("repeated_otherwise", "  with another label then"),
        ("shared", "inputs that are in train, too"),
    ):
        add(name, lambda split, key=key: _part(split[key]["count"], split[key]["of"]) if split[key] else "-")
    return lines


def _part(count: int, whole: int) -> str:
    return f"{count:,} ({count / whole:.1%})" if whole and count else f"{count:,}"


def samples(reports: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the first examples that are repeated or shared: kind, id and text."""
    kinds = {"repeated_otherwise": "repeated with another label", "shared": "in train, too"}
    return [
        (f"{split}: {name}", sample["id"], sample["text"])
        for split, values in reports.items()
        for key, name in kinds.items()
        for sample in (values[key] or {"first": []})["first"]
    ]


def table(reports: Mapping[str, Any]) -> str:
    lines = [("", *reports), *rows(reports)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]) for name, *cells in lines]
    text += [f"{what}: {name} {sample!r}" for what, name, sample in samples(reports)]
    return "\n".join(line.rstrip() for line in text)


def draw(reports: Mapping[str, Any], path: str) -> None:
    with_labels = any(values["labels"] for values in reports.values())
    figure = figures.new(5.5 * (1 + with_labels), 2.4 * len(reports))
    axes = figure.subplots(len(reports), 1 + with_labels, squeeze=False)
    for (split, values), (lengths, *others) in zip(reports.items(), axes):
        edges = np.linspace(0, values["tokens"]["of"], _BINS + 1)
        lengths.stairs(values["tokens"]["histogram"], edges, color=BLUE, fill=True)
        lengths.set_title(f"{split}: {values['examples']:,} examples")
        lengths.set_xlabel("tokens")
        for other in others:
            counts = dict(sorted(values["labels"].items(), key=lambda item: item[1])[-_MOST_LABELS:])
            other.barh(list(counts), list(counts.values()), color=BLUE)
            other.set_title(f"{split}: labels")
    figures.save(figure, path, dpi=110)

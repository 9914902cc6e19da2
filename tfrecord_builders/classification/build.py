"""Builds examples for classification, multi-label classification and regression of texts and pairs."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from tfrecord_builders.classification import labels as labels_lib
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.classification.presets import BINARY_METRICS, Dataset, SplitSource
from tfrecord_builders.common import tables
from tfrecord_builders.common.rows import LabelledRow, other_delimiter
from tfrecord_builders.pretraining.dedup import fingerprints, is_held_out
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.text import packing
from xlnet_tf.text.marks import DroppedMarks
from xlnet_tf.text.tokenizer import XLNetTokenizer

TASK = "classification"

_BATCH_ROWS = 512  # encoded at once
_COUNTED_LABELS = 20  # with more labels, the table of a set does not count each
_MOST_LABELS = 0.5  # of the rows: more are hardly classes


@dataclasses.dataclass(frozen=True)
class _Split:
    """The rows of one split: those `chosen` (bool [rows of the source]) of the source of that name."""

    name: str
    source_name: str
    chosen: np.ndarray


def build_classification(options: ClassificationOptions, progress: bool = False) -> dict[str, ExampleSet]:
    """Builds the examples of all splits.

    Args:
        options: what to build.
        progress: whether to draw progress bars on stderr.

    Returns:
        split -> its examples, in `output_dir`/split.

    Raises:
        UserError: options, data or tokenizer are wrong; no example was written then.
        FileNotFoundError: a file is missing.
    """
    dataset = options.dataset()
    options.claim([*dataset.sources, *["dev"] * bool(dataset.dev_fraction)])
    tokenizer = options.load_tokenizer()
    packing.truncated([], [], options.seq_len)  # an impossible length stops here
    dataset = _without_missing_labels(_with_labels(dataset, options), options)
    if len(dataset.labels) != 2 and (wrong := set(dataset.metrics) & set(BINARY_METRICS)):
        raise UserError(f"{', '.join(sorted(wrong))} needs two labels, here are {len(dataset.labels)}")
    marks = DroppedMarks(options.cleaning)
    splits = [split for name in dataset.sources for split in _choose(name, dataset, options, marks)]
    marks.warn()
    writers = options.writers(TASK, tokenizer, {s.name: _arguments(s, dataset, options) for s in splits})
    return {s.name: _write(s, writers[s.name], dataset, tokenizer, options, progress) for s in splits}


def _read(name: str, dataset: Dataset, options: ClassificationOptions, skip: tables.Skip | None = None):
    """Reads a source; `skip` hears of ragged rows, where they may be left out.

    Yields:
        (number, row). Numbers name rows in predictions, so those of dev and test count ragged rows, too.
    """
    source, ragged = dataset.sources[name], 0

    def leave_out(reason: str, location: str) -> None:
        nonlocal ragged
        ragged += name != "train"
        if skip:
            skip(reason, location)

    rows = tables.read_table(source.file, source.table, leave_out if options.skip_ragged else None)
    for count, row in enumerate(rows):
        if not count:
            _check_columns(row, source)
        yield count + ragged, row


def _check_columns(row: LabelledRow, source: SplitSource) -> None:
    """Raises UserError if the first row of a csv or tsv file has no column of a text."""
    missing = [column for column in (*source.text, *source.text_pair) if column not in row]
    if missing and source.table.kind in ("csv", "tsv"):
        header = (
            "its first line has the names; if that is a row, give --noheader, and the columns are 0, 1, ..."
            if source.table.header
            else "without a header the columns are numbers"
        )
        raise UserError(
            f"{row.location}: there is no column {missing[0]!r}, only {', '.join(row.values)} ({header}): "
            f"name the right one with --text_column or --text_pair_column{other_delimiter(row.values)}"
        )


def _without_missing_labels(dataset: Dataset, options: ClassificationOptions) -> Dataset:
    """Test splits need no labels: notes which ones have none.

    Raises:
        UserError: some rows of a split have a label and others none, where each row should have one.
    """
    sources = dict(dataset.sources)
    for name, source in sources.items():
        if not name.startswith("test"):
            continue
        locations: dict[bool, str] = {}  # whether a row is labelled -> the first such row
        all_hidden = True
        for _, row in _read(name, dataset, options):
            locations.setdefault(labels_lib.is_labelled(row, source), row.location)
            all_hidden = all_hidden and labels_lib.is_hidden(row, source, dataset)
        if all_hidden:
            if True in locations:
                logging.warning("%s: all labels are -1, which is read as: there are none", source.file)
            sources[name] = dataclasses.replace(source, label=())
        elif False in locations and dataset.kind != "multi_label":
            raise UserError(
                f"{locations[False]}: no label in column {source.label[0]!r}, but {locations[True]} has one: "
                "give all rows of a test split a label, or none"
            )
    return dataclasses.replace(dataset, sources=sources)


def _with_labels(dataset: Dataset, options: ClassificationOptions) -> Dataset:
    """Fills in the labels of the training data, where they are not known already."""
    if dataset.labels or dataset.kind == "regression":
        return dataset
    source, found, rows = dataset.sources["train"], set(), 0
    for _, row in _read("train", dataset, options):
        found.update(labels_lib.read_labels(row, source, dataset))
        rows += 1
    if not rows:
        raise UserError(f"{source.file} has no rows")
    if len(labels := labels_lib.in_order(found)) < 2:
        only = f"only the label {', '.join(labels)}" if labels else "no label"
        raise UserError(f"{source.file} has {only} in column {source.label[0]!r}; expected at least 2")
    if len(labels) > max(_COUNTED_LABELS, _MOST_LABELS * rows):
        logging.warning(
            "%s has %d labels in %d rows, nearly every row one of its own: is %s the column of the label "
            "(--label_column)? Numbers are learned with --kind=regression, several labels of a row with "
            "--kind=multi_label",
            source.file,
            len(labels),
            rows,
            source.label[0],
        )
    return dataclasses.replace(dataset, labels=labels)


def _choose(name: str, dataset: Dataset, options: ClassificationOptions, marks: DroppedMarks) -> list[_Split]:
    """Checks and counts all rows of a source and chooses which to use; "train" may give "dev", too."""
    source, values = dataset.sources[name], []
    for _, row in _read(name, dataset, options):
        labels_lib.encode(row, source, dataset)
        texts = _texts(row, source)
        marks.add(*texts.values())
        values.append(_fingerprint(texts))
    if not values:
        raise UserError(f"{source.file} has no rows")
    count = len(values)
    order = np.random.default_rng(options.seed).permutation(count)
    if name != "train":
        return [_Split(name, name, _mask(order, count, options.eval_limit))]
    # The text alone decides, as in pretraining: equal ones are on the same side, and rows that are added move
    # no others.
    held_out = is_held_out(np.array(values, np.uint64), dataset.dev_fraction)[order]
    if dataset.dev_fraction and not 0 < held_out.sum() < count:
        raise UserError(
            f"dev_fraction {dataset.dev_fraction} holds out {held_out.sum()} of the {count} rows of "
            f"{source.file}: choose another"
        )
    splits = [_Split("train", name, _mask(order[~held_out], count, options.train_limit))]
    if dataset.dev_fraction:
        splits.append(_Split("dev", name, _mask(order[held_out], count, options.eval_limit)))
    return splits


def _fingerprint(texts: Mapping[str, str]) -> int:
    """Returns the fingerprint of a row's texts; white space does not count."""
    [value] = fingerprints(["\n".join(" ".join(text.split()) for text in texts.values()).encode()])
    return value


def _mask(rows: np.ndarray, count: int, limit: int) -> np.ndarray:
    """Returns bool [count]: true for the given rows, of which the limit (0: none) takes the first."""
    mask = np.zeros(count, bool)
    mask[rows[: limit or None]] = True
    return mask


def _texts(row: LabelledRow, source: SplitSource) -> dict[str, str]:
    """Returns the row's text and, if there is one, its second text."""
    texts = {"text": " ".join(row.text(column) for column in source.text)}
    if source.text_pair:
        texts["text_pair"] = " ".join(row.text(column) for column in source.text_pair)
    return texts


def _arguments(split: _Split, dataset: Dataset, options: ClassificationOptions) -> dict[str, Any]:
    """Returns the arguments of a split's writer."""
    source = dataset.sources[split.source_name]
    settings = {
        "name": options.preset or "",
        "kind": dataset.kind,
        "labels": list(dataset.labels),
        "metrics": list(dataset.metrics),
        "submissions": dict(dataset.submissions),
        "truncation": options.truncation,
        "pair": bool(source.text_pair),
        "labelled": bool(source.label),
    }
    return {"columns": [labels_lib.label_column(dataset)], "settings": settings}


def _write(
    split: _Split,
    writer: ExampleWriter,
    dataset: Dataset,
    tokenizer: XLNetTokenizer,
    options: ClassificationOptions,
    progress: bool,
) -> ExampleSet:
    source = dataset.sources[split.source_name]
    counted = dataset.kind == "classification" and source.label and len(dataset.labels) <= _COUNTED_LABELS
    label_names = [f"label {label}" for label in dataset.labels] if counted else []
    lengths: list[int] = []
    with writer, ProgressBar(total=int(split.chosen.sum()), desc=split.name, disable=not progress) as bar:
        if dataset.labels and not label_names:
            writer.count("labels", len(dataset.labels))
        for name in (*label_names, "empty texts (kept)", "texts cut", "pieces cut"):
            writer.count(name, 0)  # the order of the table
        skip = writer.skip if split.name == split.source_name else None
        rows = _read(split.source_name, dataset, options, skip)
        for number, row, ids in _encoded(itertools.compress(rows, split.chosen), source, tokenizer):
            bar.update()
            lengths.append(sum(map(len, ids)))
            if not all(map(len, ids)):
                if split.name == "train":
                    writer.skip("empty text", row.location)
                    continue
                writer.count("empty texts (kept)")
            packed, dropped = _pack(ids, options)
            writer.count("texts cut", int(dropped > 0))
            writer.count("pieces cut", dropped)
            label = labels_lib.encode(row, source, dataset)
            if label_names:
                writer.count(label_names[label])
            row_id = row.text(source.id) if source.id else str(number)
            writer.write({**packed._asdict(), "label": label}, {"id": row_id, **_texts(row, source)})
        if not any(lengths):
            raise UserError(f"all texts of {source.file} are empty: is {', '.join(source.text)} the column?")
        writer.count_lengths("pieces of a text", lengths)
    return writer.example_set


def _encoded(
    rows: Iterator[tuple[int, LabelledRow]], source: SplitSource, tokenizer: XLNetTokenizer
) -> Iterator[tuple[int, LabelledRow, tuple[np.ndarray, ...]]]:
    """Yields (number, row, piece ids of its text and, if there is one, of its second text)."""
    while batch := list(itertools.islice(rows, _BATCH_ROWS)):
        texts = [text for _, row in batch for text in _texts(row, source).values()]
        ids, lengths = tokenizer.encode_batch(texts)
        parts = iter(np.split(ids, np.cumsum(lengths)[:-1]))
        per_row = len(texts) // len(batch)
        for number, row in batch:
            yield number, row, tuple(itertools.islice(parts, per_row))


def _pack(ids: Sequence[np.ndarray], options: ClassificationOptions) -> tuple[packing.Packed, int]:
    """Returns the sequence of a text, or of two, and how many pieces were too many."""
    *_, dropped = packing.truncated(ids[0], *ids[1:] or (None,), options.seq_len)
    if dropped and options.truncation == "middle":
        # The proportion of Sun et al. 2019, How to fine-tune BERT for text classification: 128 of 510.
        room = len(ids[0]) - dropped
        head = room // 4
        ids = [np.concatenate([ids[0][:head], ids[0][head - room :]])]
    return packing.pack(*ids, seq_len=options.seq_len), dropped

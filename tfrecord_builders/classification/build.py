"""Builds examples for classification, multi-label classification and regression of texts and pairs."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from tfrecord_builders.classification import labels as labels_lib
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.classification.presets import BINARY_METRICS, Dataset, SplitSource
from tfrecord_builders.common import tables
from tfrecord_builders.common.example_builder import Example, Split, build_sets, check_held_out, encoded
from tfrecord_builders.common.rows import LabelledRow, other_delimiter
from tfrecord_builders.pretraining.dedup import fingerprints, is_held_out
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.text import packing
from xlnet_tf.text.marks import DroppedMarks
from xlnet_tf.text.tokenizer import XLNetTokenizer

TASK = "classification"

_COUNTED_LABELS = 20  # with more labels, the table of a set does not count each
_MOST_LABELS = 0.5  # of the rows: more are hardly classes

_NumberedRow = tuple[int, LabelledRow]
_Skipped = list[tuple[str, str]]  # reason and location of each row


def build_classification(options: ClassificationOptions, progress: bool = False) -> dict[str, ExampleSet]:
    """Builds the examples of all splits; if options, data or tokenizer are wrong, no example is written."""
    dataset = options.dataset()
    options.claim([*dataset.sources, *["dev"] * bool(dataset.dev_fraction)])
    tokenizer = options.load_tokenizer()
    packing.truncated([], [], options.seq_len)  # an impossible length stops here
    dataset = _without_missing_labels(_with_labels(dataset))
    if len(dataset.labels) != 2 and (wrong := set(dataset.metrics) & set(BINARY_METRICS)):
        raise UserError(f"{', '.join(sorted(wrong))} needs two labels, here are {len(dataset.labels)}")
    marks = DroppedMarks(options.cleaning)
    masks: dict[str, np.ndarray] = {}
    ragged: dict[str, _Skipped] = {}
    for name in dataset.sources:
        ragged[name] = []
        values = _check_rows(name, dataset, marks, ragged[name])
        limit = options.train_limit if name == "train" else options.eval_limit
        masks |= _choose(name, values, dataset, options.seed, limit, options.eval_limit)
    marks.warn()

    def read(name: str) -> Split[_NumberedRow]:
        source_name = name if name in dataset.sources else "train"  # which the rows held out are from
        source = dataset.sources[source_name]
        examples = _Examples(options, tokenizer, dataset, source, name == "train")
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
        return Split(
            itertools.compress(_read(source_name, dataset), masks[name]),
            int(masks[name].sum()),
            [labels_lib.label_column(dataset)],
            settings,
            examples.of,
            skipped=ragged.get(name, ()),
        )

    return build_sets(TASK, options, tokenizer, [*masks], read, "texts", progress)


def _read(name: str, dataset: Dataset, skipped: _Skipped | None = None) -> Iterator[_NumberedRow]:
    """Yields (number, row). Numbers identify rows in predictions: those of dev and test count ragged rows."""
    source, ragged = dataset.sources[name], 0

    def leave_out(*reason_and_location: str) -> None:
        nonlocal ragged
        ragged += name != "train"
        if skipped is not None:
            skipped.append(reason_and_location)

    rows = tables.read_table(source.file, source.table, leave_out if dataset.skip_ragged else None)
    for count, row in enumerate(rows):
        if not count:
            _check_columns(row, source)
        yield count + ragged, row


def _check_columns(row: LabelledRow, source: SplitSource) -> None:
    """Raises UserError if the first row of a csv or tsv file lacks a text column."""
    missing = [column for column in (*source.text, *source.text_pair) if column not in row]
    if missing and source.table.kind in ("csv", "tsv"):
        header = (
            "its first line has the names; if that is a row, give build classification --noheader"
            if source.table.header
            else "without a header the columns are numbers"
        )
        raise UserError(
            f"{row.location}: there is no column {missing[0]!r}, only {', '.join(row.values)} ({header}): "
            f"name the right one with --text_column or --text_pair_column{other_delimiter(row.values)}"
        )


def _without_missing_labels(dataset: Dataset) -> Dataset:
    """Marks test splits without labels as unlabelled; raises UserError if only some rows have a label."""
    sources = dict(dataset.sources)
    for name, source in sources.items():
        if not name.startswith("test"):
            continue
        locations: dict[bool, str] = {}  # whether a row is labelled -> the first such row
        all_hidden = True
        for _, row in _read(name, dataset):
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


def _with_labels(dataset: Dataset) -> Dataset:
    """Fills in the labels of the training data, where they are not known already."""
    if dataset.labels or dataset.kind == "regression":
        return dataset
    source, found, rows = dataset.sources["train"], set(), 0
    for _, row in _read("train", dataset):
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


def _check_rows(name: str, dataset: Dataset, marks: DroppedMarks, skipped: _Skipped) -> np.ndarray:
    """Checks all rows of a source; returns the fingerprints of their texts, uint64 [rows]."""
    source, values = dataset.sources[name], []
    for _, row in _read(name, dataset, skipped):
        labels_lib.encode(row, source, dataset)
        texts = _texts(row, source)
        marks.add(*texts.values())
        values.append(_fingerprint(texts))
    if not values:
        raise UserError(f"{source.file} has no rows")
    return np.array(values, np.uint64)


def _choose(
    name: str, values: np.ndarray, dataset: Dataset, seed: int, limit: int, dev_limit: int
) -> dict[str, np.ndarray]:
    """Returns split -> bool [rows], by the rows' fingerprints; "train" may also give "dev"; limit 0: all."""
    count = len(values)
    order = np.random.default_rng(seed).permutation(count)
    if name != "train":
        return {name: _mask(order, count, limit)}
    # The text alone decides, as in pretraining: equal ones are on one side, and added rows move no others.
    held_out = is_held_out(values, dataset.dev_fraction)[order]
    if dataset.dev_fraction:
        check_held_out(held_out, dataset.dev_fraction, dataset.sources[name].file)
    masks = {"train": _mask(order[~held_out], count, limit)}
    if dataset.dev_fraction:
        masks["dev"] = _mask(order[held_out], count, dev_limit)
    return masks


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


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Converts the rows of a split to examples; those for training need a text."""

    options: ClassificationOptions
    tokenizer: XLNetTokenizer
    dataset: Dataset
    source: SplitSource
    training: bool

    def of(self, rows: Iterable[_NumberedRow], writer: ExampleWriter) -> Iterator[Example]:
        source, dataset = self.source, self.dataset
        counted = dataset.kind == "classification" and source.label and len(dataset.labels) <= _COUNTED_LABELS
        label_names = [f"label {label}" for label in dataset.labels] if counted else []
        lengths: list[int] = []
        if dataset.labels and not label_names:
            writer.count("labels", len(dataset.labels))
        for name in (*label_names, "empty texts (kept)", "texts cut", "pieces cut"):
            writer.count(name, 0)  # the order of the table
        for (number, row), ids in encoded(
            rows, lambda each: [*_texts(each[1], source).values()], self.tokenizer
        ):
            lengths.append(sum(map(len, ids)))
            if not all(map(len, ids)):
                if self.training:
                    writer.skip("empty text", row.location)
                    continue
                writer.count("empty texts (kept)")
            packed, dropped = pack_texts(ids, self.options.seq_len, self.options.truncation)
            writer.count("texts cut", int(dropped > 0))
            writer.count("pieces cut", dropped)
            label = labels_lib.encode(row, source, dataset)
            if label_names:
                writer.count(label_names[label])
            row_id = row.text(source.id) if source.id else str(number)
            yield {**packed._asdict(), "label": label}, {"id": row_id, **_texts(row, source)}
        if not any(lengths):
            raise UserError(f"all texts of {source.file} are empty: is {', '.join(source.text)} the column?")
        writer.count_lengths("pieces of a text", lengths)


def pack_texts(ids: Sequence[np.ndarray], seq_len: int, truncation: str) -> tuple[packing.Packed, int]:
    """Packs a text or a pair; also returns how many pieces were cut off."""
    *_, dropped = packing.truncated(ids[0], *ids[1:] or (None,), seq_len)
    if dropped and truncation == "middle":
        ids = [packing.without_middle(ids[0], len(ids[0]) - dropped)]
    return packing.pack(*ids, seq_len=seq_len), dropped

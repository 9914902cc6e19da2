"""Labels of rows: which ones there are, and their numbers."""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from tfrecord_builders.classification.presets import Dataset, SplitSource
from tfrecord_builders.common.rows import HIDDEN_LABELS, LabelledRow, NestedJson, zero_or_one
from xlnet_tf.errors import UserError
from xlnet_tf.records.layout import Column

UNLABELLED = -1
_SHOWN = 20  # labels in a message
_LARGEST = float(np.finfo(np.float32).max)


def is_labelled(row: LabelledRow, source: SplitSource) -> bool:
    return any(column in row and "".join(row[column]).strip() for column in source.label)


def is_hidden(row: LabelledRow, source: SplitSource, dataset: Dataset) -> bool:
    """Returns whether a row has no label, or -1 where that is not one of the labels."""
    hidden = set(HIDDEN_LABELS).difference(dataset.labels)
    return all(column not in row or "".join(row[column]).strip() in hidden for column in source.label)


def read_labels(row: LabelledRow, source: SplitSource, dataset: Dataset) -> list[str]:
    """Returns a row's labels as written: one, or any number for multi_label.

    UserErrors, with file and line, reject missing labels, columns of a label with other values than 0 and 1,
    and lists of 0 and 1.
    """
    if dataset.kind != "multi_label":
        label = _only_label(row, source.label[0]).strip()
        if not label:
            raise UserError(
                f"{row.location}: no label in column {source.label[0]!r}: label it or remove the row"
            )
        return [label]
    if len(source.label) == 1:
        value = row[source.label[0]]
        values = value if isinstance(value, list) else value.split(dataset.separator)
        if any(isinstance(part, NestedJson) for part in values):
            raise UserError(
                f"{row.location}: {source.label[0]} is {', '.join(values)[:80]}, expected a list of labels"
            )
        labels = [label for label in map(str.strip, values) if label]
        # Two of them may be labels themselves, called 0 and 1.
        if len(labels) > 2 and None not in map(zero_or_one, labels):
            raise UserError(
                f"{row.location}: {source.label[0]} is {', '.join(labels[:_SHOWN])}, 0 or 1 for each "
                "label; expected names: write those of the labels with 1, or a column for each label"
            )
        return labels
    given = {column: zero_or_one(row.text(column)) for column in source.label}
    if wrong := [column for column, value in given.items() if value is None]:
        raise UserError(
            f"{row.location}: column {wrong[0]!r} has {row.text(wrong[0])!r}, expected 0 or 1 (or False or "
            "True)"
        )
    return [column for column, value in given.items() if value]


def _only_label(row: LabelledRow, column: str) -> str:
    """Returns a label, which labelling tools write as a list of one; other lists are a UserError."""
    value = row[column]
    if not isinstance(value, list) or not value:
        return "" if value == [] else row.text(column)
    if isinstance(value[0], NestedJson):
        raise UserError(
            f"{row.location}: {column} is {', '.join(value)[:80]}, expected a label: entities are for "
            "the builder tagging"
        )
    if len(value) > 1:
        raise UserError(
            f"{row.location}: several labels in column {column!r} ({', '.join(value[:_SHOWN])}): give "
            "--kind=multi_label, or leave one"
        )
    return value[0]


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns each label once: numbers by their value, NaN last, other labels by their spelling.

    1 and 1.0 are one label, which has the shorter name if both occur.
    """
    labels = set(labels)
    labels = {label for label in labels if _whole(label) == label or _whole(label) not in labels}
    try:
        return tuple(sorted(labels, key=_by_value))
    except ValueError:
        return tuple(sorted(labels))


def _by_value(label: str) -> tuple[bool, float, str]:
    value = float(label)
    return (True, 0.0, label) if math.isnan(value) else (False, value, label)


def _whole(label: str) -> str:
    """Returns a label without the .0 that some tables and json writers give whole numbers."""
    return label.removesuffix(".0") if re.fullmatch(r"-?\d+\.0", label) else label


def encode(row: LabelledRow, source: SplitSource, dataset: Dataset) -> int | float | np.ndarray:
    """Returns what is stored: the label's number, its value (regression) or int8 [C], 1 where it is given.

    Without a label column: -1 (regression: NaN).
    """
    size = len(dataset.labels)
    if not source.label:
        return {"regression": math.nan, "multi_label": np.full(size, UNLABELLED)}.get(
            dataset.kind, UNLABELLED
        )
    labels = read_labels(row, source, dataset)
    if dataset.kind == "regression":
        return _number(labels[0], row)
    numbers = [_index(label, dataset.labels, row) for label in labels]
    return np.isin(np.arange(size), numbers) if dataset.kind == "multi_label" else numbers[0]


def label_column(dataset: Dataset) -> Column:
    """Returns the column that stores the values of `encode`."""
    if dataset.kind == "multi_label":
        return Column("label", "int8", len(dataset.labels))
    return Column("label", "float32" if dataset.kind == "regression" else "int32", None)


def _number(label: str, row: LabelledRow) -> float:
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{row.location}: the label is {label!r}, expected a number")
    if abs(value) > _LARGEST:
        raise UserError(
            f"{row.location}: the label is {label!r}, expected at most {_LARGEST:.4g} either way, the "
            "largest number of float32: give it in another unit"
        )
    return value


def _index(label: str, labels: Sequence[str], row: LabelledRow) -> int:
    try:
        return labels.index(label)
    except ValueError:
        for number, other in enumerate(labels):
            if _whole(other) == _whole(label):
                return number
        known = ", ".join(labels[:_SHOWN]) + (", ..." if len(labels) > _SHOWN else "")
        raise UserError(
            f"{row.location}: unknown label {label!r}; known are {known} (from the training data, --labels "
            "or the preset): correct it, or give all labels with --labels"
        ) from None

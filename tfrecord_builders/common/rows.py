"""Rows of labelled data, from whatever holds them: a table of text, a columnar file, a data set by name."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from xlnet_tf import files
from xlnet_tf.errors import UserError

# Whole numbers of up to 9 digits, as Python refuses to read thousands; 1.0 is what many tables make of 1.
_WHOLE_NUMBER = re.compile(r"\d{1,9}(\.0*)?")
_TRUTH = {"false": 0, "true": 1}
HIDDEN_LABELS = ("", "-1", "-1.0")  # what test data have where nobody may know the labels


class NestedJson(str):
    """The json of a list or an object that a row has in a column, or in the list of a column."""


@dataclasses.dataclass(frozen=True)
class LabelledRow:
    """A row of a labelled table, whose columns are read as texts.

    Attributes:
        values: column -> text, or list of texts. What is nested is there as json, and each of its parts as a
            column of its own: answers and answers.text.
        file: a file, a folder or the name of a data set.
        line: number of its first line or, `numbered`, of the row, from 1; 0: the row is the whole file.
    """

    values: Mapping[str, str | list[str]]
    file: str
    line: int
    numbered: bool = False

    @property
    def location(self) -> str:
        """File and line or row, for messages."""
        if self.numbered:
            return f"{self.file}, row {self.line}"
        return f"{self.file}:{self.line}" if self.line else self.file

    def __contains__(self, column: str) -> bool:
        return column in self.values

    def __getitem__(self, column: str) -> str | list[str]:
        if column not in self.values:
            raise UserError(
                f"{self.location}: there is no column {column!r}, only {', '.join(self.values)}: "
                f"name the right one{other_delimiter(self.values)}"
            )
        return self.values[column]

    def text(self, column: str) -> str:
        """Returns a column's text; a missing column, a list or an object is a UserError."""
        value = self[column]
        if isinstance(value, list):
            raise UserError(f"{self.location}: column {column!r} is a list, expected a text")
        if isinstance(value, NestedJson):
            parts = [name for name in self.values if name.startswith(f"{column}.")]
            raise UserError(
                f"{self.location}: column {column!r} is an object, expected a text: name one of its parts "
                f"({', '.join(parts) or 'here there are none'})"
            )
        return value

    def text_or(self, column: str, default: str) -> str:
        """Returns a column's text; the default if the row has no such column, or nothing in it."""
        return self.text(column) or default if column in self else default

    def texts(self, column: str) -> list[str]:
        """Returns a column's list; in a csv or tsv file it is one of json."""
        value = self[column]
        if isinstance(value, str):
            try:
                parsed = json.loads(value)
            except ValueError:
                parsed = None
            if not isinstance(parsed, list):
                raise UserError(f"{self.location}: {column} is {value!r}, expected a list")
            value = [_text(item) for item in parsed]
        return value


class DecodedValues(Mapping[str, str | list[str]]):
    """The values of a row, each of which is decoded when it is first asked for."""

    def __init__(self, names: Collection[str], decode: Callable[[str], str | list[str]]):
        self._names, self._decode = names, decode
        self._decoded: dict[str, str | list[str]] = {}

    def __getitem__(self, name: str) -> str | list[str]:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._decoded:
            self._decoded[name] = self._decode(name)
        return self._decoded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class BadRow(ValueError):
    """Why a row cannot be read; its location is for the caller to say."""


class NotAnObject(BadRow):
    """A line of jsonl is something else."""


def parse_object(line: str) -> dict[str, Any]:
    """Returns the object on a line of jsonl.

    Raises:
        NotAnObject: it is something else.
        BadRow: it has a key twice.
    """
    try:
        values = files.parse_json(line)
    except files.SecondKey as error:
        raise BadRow(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise NotAnObject(f"not json ({error}), expected an object") from None
    if not isinstance(values, dict):
        raise NotAnObject(f"a json {type(values).__name__}, expected an object")
    return values


def parse_row(line: str) -> dict[str, Any]:
    """As `parse_object`, for rows that are written again: no file can hold half a character."""
    values = parse_object(line)
    if "\\u" in line and (half := half_character(values)):
        raise BadRow(f"{half} is half a character (a lone surrogate): repair it")
    return values


def row_values(values: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Returns the values of a row, given those of json's types."""
    texts: dict[str, str | list[str]] = {}
    for name, value in values.items():
        texts[name] = as_text(value)
        if isinstance(value, Mapping):
            texts |= {f"{name}.{part}": inner for part, inner in row_values(value).items()}
    return texts


def as_text(value: Any) -> str | list[str]:
    """Returns a value of json's types as text, or as a list of texts."""
    return [_text(item) for item in value] if isinstance(value, list) else _text(value)


def _text(value: Any) -> str:
    """Returns a value as text: true and false as 1 and 0, null and NaN, which many tables have for it, as "".

    Bytes, as older writers store texts, are decoded; dates and decimal numbers are as Python writes them.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, Mapping)):
        return NestedJson(json.dumps(value, default=_text))
    if isinstance(value, (int, float)):
        return json.dumps(value)
    return value.decode() if isinstance(value, bytes) else str(value)


def whole_number(text: str) -> int | None:
    """Returns the whole number from 0 up that a text spells, as 1 or 1.0; None if it is something else."""
    return int(text.partition(".")[0]) if _WHOLE_NUMBER.fullmatch(text) else None


def zero_or_one(text: str) -> int | None:
    """Returns 0 or 1 for a text that spells it, as 1, 1.0 or True; None if it is something else."""
    value = _TRUTH.get(text.strip().lower(), whole_number(text.strip()))
    return value if value in (0, 1) else None


def half_character(values: Any) -> str:
    """Returns a surrogate without its other half, which json can spell but no file can hold; "" for none."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return ascii(error.object[error.start])
    return ""


def name_as_text(name: str) -> str:
    """Returns the name of a file as examples have it: bytes that are not UTF-8 are spelt, as \\udcff."""
    return name.encode("utf-8", "backslashreplace").decode()


def other_delimiter(columns: Collection[str]) -> str:
    """Returns the end of a message: that a table's only column looks like several; or ""."""
    only = next(iter(columns)) if len(columns) == 1 else ""
    if not (mark := next((mark for mark in ";\t|," if mark in only), "")):
        return ""
    return f". The columns seem to be separated by {mark!r}: save the table with commas (.csv) or tabs (.tsv)"

"""Rows of labelled data, from whatever holds them: a table of text, a columnar file, a data set by name."""

import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from xlnet_tf.errors import UserError

MOST_DIGITS = 9  # of whole numbers in rows; Python refuses to read thousands


class NestedJson(str):
    """The json of a list or an object that a row has in a column, or in the list of a column."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        values: column -> text, or list of texts. What is nested is there as json, and each of its parts as a
            column of its own: answers and answers.text.
        file: where it stands: a file, a folder or the name of a data set.
        line: number of its first line or, `numbered`, of the row, from 1; 0: the row is the whole file.
        numbered: whether rows are counted, as in files without lines.
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
        """Returns a column's text.

        Raises:
            UserError: the column is missing, or holds a list or an object.
        """
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
        """Returns a column's text; the default if the row has no such column, or nothing in it.

        Raises:
            UserError: the column holds a list or an object.
        """
        return self.text(column) or default if column in self else default

    def texts(self, column: str) -> list[str]:
        """Returns a column's list; in a csv or tsv file it is one of json.

        Raises:
            UserError: the column is missing, or holds something else.
        """
        value = self[column]
        if isinstance(value, str):
            try:
                parsed = json.loads(value)
            except ValueError:
                parsed = None
            if not isinstance(parsed, list):
                raise UserError(f"{self.location}: {column} is {value!r}, expected a list")
            value = _items(parsed)
        return value


def row_values(values: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Returns the values of a row, given those of json's types."""
    found: dict[str, str | list[str]] = {}
    for name, value in values.items():
        if isinstance(value, list):
            found[name] = _items(value)
            continue
        found[name] = _text(value)
        if isinstance(value, Mapping):
            found |= {f"{name}.{part}": inner for part, inner in row_values(value).items()}
    return found


def _items(values: list) -> list[str]:
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    """Returns a value as text: true and false as 1 and 0, null and NaN, which many tables have for it, as "".

    Bytes, as older writers store texts, are decoded; dates and decimal numbers are as Python writes them.

    Raises:
        UnicodeDecodeError: bytes are not UTF-8.
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

"""Rows of labelled data from any source: a table of text, a columnar file, a named data set."""

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
    """A list or an object as json, from a column of a row or from the list of a column."""


@dataclasses.dataclass(frozen=True)
class LabelledRow:
    """A row of a labelled table: column -> text, or list of texts.

    A nested value is there as json, and each of its parts as a column of its own: answers and answers.text.
    """

    values: Mapping[str, str | list[str]]
    file: str
    line: int  # of its first line or, `numbered`, of the row, from 1; 0: the row is the whole file
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
        """Returns a column's text, or the default if the column is missing or empty."""
        return self.text(column) or default if column in self else default

    def texts(self, column: str) -> list[str]:
        """Returns a column's list; csv and tsv files hold it as json."""
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
    """The values of a row, each decoded when it is first accessed."""

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
    """The reason why a row cannot be read, without its location."""


class NotAnObject(BadRow):
    """A line of jsonl is not an object."""


def parse_object(line: str) -> dict[str, Any]:
    """Returns the object on a line of jsonl; raises NotAnObject, or BadRow if a key is there twice."""
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
    """Parses an object as `parse_object` does; also rejects unpaired surrogates, which no file can hold."""
    values = parse_object(line)
    if "\\u" in line and (half := half_character(values)):
        raise BadRow(f"{half} is half a character (a lone surrogate): repair it")
    return values


def row_values(values: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Converts the values of a row from json's types to texts."""
    texts: dict[str, str | list[str]] = {}
    for name, value in values.items():
        texts[name] = as_text(value)
        if isinstance(value, Mapping):
            texts |= {f"{name}.{part}": inner for part, inner in row_values(value).items()}
    return texts


def as_text(value: Any) -> str | list[str]:
    return [_text(item) for item in value] if isinstance(value, list) else _text(value)


def _text(value: Any) -> str:
    """Converts a value to text: true to 1, false to 0, null and NaN to "", bytes by decoding them."""
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
    """Parses a whole number from 0 up, spelled as 1 or 1.0; None if it is something else."""
    return int(text.partition(".")[0]) if _WHOLE_NUMBER.fullmatch(text) else None


def zero_or_one(text: str) -> int | None:
    """Parses 0 or 1, spelled as 1, 1.0 or True; None if it is something else."""
    value = _TRUTH.get(text.strip().lower(), whole_number(text.strip()))
    return value if value in (0, 1) else None


def half_character(values: Any) -> str:
    """Returns an unpaired surrogate, which json can spell but no file can hold; "" for none."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return ascii(error.object[error.start])
    return ""


def name_as_text(name: str) -> str:
    """Returns a file name as text for examples; bytes that are not UTF-8 are escaped, as \\udcff."""
    return name.encode("utf-8", "backslashreplace").decode()


def other_delimiter(columns: Collection[str]) -> str:
    """Returns the end of a message if a table's only column looks like several; or ""."""
    only = next(iter(columns)) if len(columns) == 1 else ""
    if not (mark := next((mark for mark in ";\t|," if mark in only), "")):
        return ""
    return f". The columns seem to be separated by {mark!r}: save the table with commas (.csv) or tabs (.tsv)"

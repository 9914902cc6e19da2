"""Which values a field may have: its type is the annotation's, its limits are the field's.

    @dataclasses.dataclass(frozen=True)
    class Window:
        length: int = limited(512, least=7)
        mode: str = limited("fast", choices=("fast", "exact"))

`check_fields(Window(length=5))` raises "length is 5, expected at least 7". `check_object` checks that a JSON
object has exactly these fields, with the same types and limits.
"""

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlnet_tf.errors import UserError, short_repr

_LISTS = (list, tuple, Sequence)
_ACCEPTED = {
    bool: bool,
    int: int,
    float: (int, float),
    str: (str, os.PathLike),
    list: (list, tuple),
    tuple: (list, tuple),
    Sequence: Sequence,
    dict: dict,
}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "an object with fields",
}
Path = str | tuple["Path", str, Any]  # to a value: a name, or (path, field, ""), or (path, "", index)
_PARTS = {int: " of whole numbers", float: " of numbers", str: " of texts"}


class Limits(NamedTuple):
    """Which values of its type a field may have; `least` and `most` are inclusive, the others exclusive."""

    choices: Sequence[Any] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def allow(self, value: Any) -> bool:
        return (
            (not self.choices or value in self.choices)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        if self.least is not None and self.most is not None:
            return f"{self.least} to {self.most}"
        words = {
            "at least": self.least,
            "more than": self.above,
            "at most": self.most,
            "less than": self.below,
        }
        return " and ".join(f"{word} {limit}" for word, limit in words.items() if limit is not None)


UNLIMITED = Limits()


class Kind(NamedTuple):
    """The meaning of an annotation: `list[int] | None` is an optional list with parts of type int."""

    type: Any
    part: "Kind | None"
    is_optional: bool
    limits: Limits
    plain: Any  # a type whose values are all valid; None: there is none

    def expected(self, value: Any) -> str:
        """Returns what is expected instead of a value, in words; "" if it is right."""
        if self.type is typing.Literal:  # not `in`: for Python, 1 is True
            same = (type(choice) is type(value) and choice == value for choice in self.limits.choices)
            return "" if any(same) else str(self.limits)
        if self.type not in _ACCEPTED:
            return ""
        # For Python, True is a number and a text is a sequence.
        is_other = isinstance(value, bool | str) and type(value) is not self.type
        if is_other or not isinstance(value, _ACCEPTED[self.type]):
            if self.type in _LISTS:
                return f"a list{_PARTS.get(self.part and self.part.type, '')}"
            words = [_WORDS[self.type]] * (not self.limits.choices)
            return " of ".join([*words, *[str(self.limits)] * any(self.limits)])
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return "a number between -2**63 and 2**63 - 1"
        if isinstance(value, float) and not math.isfinite(value):
            return "a finite number"
        return "" if self.limits.allow(value) else str(self.limits)


def kind_of(hint: Any, limits: Limits = UNLIMITED) -> Kind:
    """Returns the meaning of an annotation, with the limits of its field, or of each part of a list."""
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    options = typing.get_args(hint) if is_union else (hint,)
    first = next((option for option in options if option is not types.NoneType), types.NoneType)
    kind, parts = typing.get_origin(first) or first, typing.get_args(first)
    limits = Limits(parts) if kind is typing.Literal else limits
    part = None
    if parts and kind in _LISTS:
        part, limits = kind_of(parts[0], limits), UNLIMITED
    plain = kind if kind in (bool, str, list, dict) and not part and limits == UNLIMITED else None
    return Kind(kind, part, types.NoneType in options, limits, plain)


def limited(default: Any = dataclasses.MISSING, **limits: Any) -> Any:
    """Returns a dataclass field whose values have `Limits`."""
    return dataclasses.field(default=default, metadata={"limits": Limits(**limits)})


def limits_of(field: dataclasses.Field) -> Limits:
    return field.metadata.get("limits", UNLIMITED)


def check_fields(instance: Any, where: str = "") -> None:
    """Raises UserError if a field of a dataclass instance has a wrong type or violates its limits."""
    for name, kind in _kinds(type(instance)).items():
        if text := _problem(where + name, getattr(instance, name), kind):
            raise UserError(text)


def check_object(values: Any, cls: type, where: str, fix: str = "", optional: Collection[str] = ()) -> None:
    """Raises UserError unless a JSON object has exactly the compared fields of a dataclass, or `optional`."""
    if text := _problem_of_object("", values, cls, optional):
        raise UserError(f"{where}: {text}{fix and f': {fix}'}")


def problem(name: str, value: Any, hint: Any, limits: Limits = UNLIMITED) -> str:
    """Returns what is wrong with a value, such as "size is 0, expected at least 1"; "" if nothing is.

    If `hint` is a dataclass, the value is a JSON object with its fields.
    """
    return _problem(name, value, kind_of(hint, limits))


def _problem(path: Path, value: Any, kind: Kind) -> str:
    if value is None and kind.is_optional:
        return ""
    if expected := kind.expected(value):
        return f"{_spell(path)} is {short_repr(value)}, expected {expected}"
    if kind.part:
        for index, part in enumerate(value):
            if text := _problem((path, "", index), part, kind.part):
                return text
    elif dataclasses.is_dataclass(kind.type) and not isinstance(value, kind.type):
        return _problem_of_object(path, value, kind.type)
    return ""


def _problem_of_object(path: Path, values: Any, cls: type, optional: Collection[str] = ()) -> str:
    before = f"{_spell(path)}: " if path else ""
    if not isinstance(values, dict):
        return f"{before}expected an object with fields, found {short_repr(values)}"
    kinds = _kinds_in_files(cls)
    if kinds.keys() != values.keys():
        wrong = {
            "missing": kinds.keys() - values.keys() - set(optional),
            "unknown": values.keys() - kinds.keys(),
        }
        if text := "; ".join(f"{word} {', '.join(sorted(names))}" for word, names in wrong.items() if names):
            return f"{before}fields {text}; expected exactly {', '.join(kinds)}"
    for name, value in values.items():
        kind = kinds[name]
        # Most values are right and plain, and a manifest may have thousands of shards.
        if type(value) is not kind.plain and (text := _problem((path, name, ""), value, kind)):
            return text
    return ""


def _spell(path: Path) -> str:
    if isinstance(path, str):
        return path
    parent, name, index = _spell(path[0]), path[1], path[2]
    return ".".join(filter(None, (parent, name))) if name else f"{parent}[{index}]"


@functools.cache
def _kinds(cls: type) -> dict[str, Kind]:
    hints = typing.get_type_hints(cls)
    return {field.name: kind_of(hints[field.name], limits_of(field)) for field in dataclasses.fields(cls)}


@functools.cache
def _kinds_in_files(cls: type) -> dict[str, Kind]:
    left_out = {field.name for field in dataclasses.fields(cls) if not field.compare}
    return {name: kind for name, kind in _kinds(cls).items() if name not in left_out}


def is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)

"""Fields have the types of their annotations and limits of their own; JSON must have exactly these fields."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from xlnet_tf import schema
from xlnet_tf.errors import UserError
from xlnet_tf.schema import limited


@dataclasses.dataclass
class Part:
    size: int = limited(least=1, most=9)
    added: str = ""


@dataclasses.dataclass
class Whole:
    name: str = "a"
    count: int = 1
    rate: float = limited(0.5, above=0, below=1)
    mode: str = limited("fast", choices=("fast", "exact"))
    is_even: bool = True
    ids: list[int] = dataclasses.field(default_factory=list)
    texts: Sequence[str] | None = None
    parts: tuple[Part, ...] = ()
    others: dict = dataclasses.field(default_factory=dict)
    anything: Any = None
    folder: str = dataclasses.field(default="", compare=False)


def as_json(**changes) -> dict:
    parts = [{"size": 1, "added": ""}, {"size": 9, "added": "x"}]
    values = dataclasses.asdict(Whole()) | {"parts": parts} | changes
    del values["folder"]
    return values


WRONG = [
    ({"count": True}, "count is True, expected a whole number"),
    ({"count": 1.0}, "count is 1.0, expected a whole number"),
    ({"count": 2**63}, "count is 9223372036854775808, expected a number between -2**63 and 2**63 - 1"),
    ({"rate": "1"}, "rate is '1', expected a number of more than 0 and less than 1"),
    ({"rate": 0}, "rate is 0, expected more than 0 and less than 1"),
    ({"rate": float("nan")}, "rate is nan, expected a finite number"),
    ({"mode": "last"}, "mode is 'last', expected one of fast, exact"),
    ({"is_even": 1}, "is_even is 1, expected true or false"),
    ({"ids": "12"}, "ids is '12', expected a list of whole numbers"),
    ({"ids": [1, "2"]}, "ids[1] is '2', expected a whole number"),
    ({"texts": "ab"}, "texts is 'ab', expected a list of texts"),
    ({"others": []}, "others is [], expected an object with fields"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_wrong_value_is_named(changes, message):
    with pytest.raises(UserError) as error:
        schema.check_fields(Whole(**changes), "Whole.")
    assert str(error.value) == f"Whole.{message}"
    with pytest.raises(UserError) as error:
        schema.check_object(as_json(**changes), Whole, "a.json", "write it again")
    assert str(error.value) == f"a.json: {message}: write it again"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], r"expected an object with fields, found \[\]"),
        (as_json(colour=1), "fields unknown colour; expected exactly name, count"),
        ({"name": "a"}, "fields missing anything, count"),
        (as_json(parts=[{"size": 0, "added": ""}]), r"parts\[0\].size is 0, expected 1 to 9"),
        (as_json(parts=[Part(1), {}]), r"parts\[1\]: fields missing added, size; expected exactly size"),
    ],
)
def test_objects_have_exactly_the_fields(values, message):
    with pytest.raises(UserError, match=f"a.json: {message}"):
        schema.check_object(values, Whole, "a.json")


def test_what_is_right_passes():
    schema.check_object(as_json(rate=0.25, texts=["b"], ids=[-(2**63)]), Whole, "a.json")
    schema.check_fields(Whole(texts=("a",), parts=(Part(1),), mode="exact"))
    values = as_json()
    del values["name"]
    schema.check_object(values, Whole, "a.json", optional=["name"])

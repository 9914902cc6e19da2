"""A field of a dataclass says once what it means; its flag and its check follow."""

import dataclasses
from collections.abc import Sequence

import pytest
from absl import flags

from tests.helpers import command_flags
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.schema import check_fields


@dataclasses.dataclass(frozen=True)
class Options:
    output_dir: str = option("where to write")
    files: Sequence[str] = option("what to read", ("a", "b"))
    labels: Sequence[str] | None = option("labels", None)
    widths: Sequence[int] = option("how wide", (1, 8), least=1)
    size: int = option("how large", 4, least=2, most=8)
    stride: int | None = option("steps", None, least=1)
    rate: float = option("rate", 0.5, positive=True)
    mode: str = option("how", "fast", choices=("fast", "slow"))
    header: bool | None = option("whether there is one", None)
    seed: int = 7  # not a flag


def parsed(*arguments):
    return command_flags.parsed(lambda: define_flags(Options), *arguments)


def test_flags_become_options():
    assert from_flags(Options, parsed("--output_dir=x")) == Options("x", files=["a", "b"], widths=[1, 8])
    given = ("--output_dir=x", "--files=c,d", "--labels=0,1", "--size=8", "--stride=2", "--rate=1e-3")
    widths = ("--widths=3", "--widths=2")
    assert from_flags(Options, parsed(*given, *widths, "--mode=slow", "--noheader")) == Options(
        "x", ["c", "d"], ["0", "1"], [3, 2], 8, 2, 1e-3, "slow", False
    )
    found = from_flags(Options, parsed("--output_dir=x", "--size=3"), size=5, stride=6, seed=9)
    assert (found.size, found.stride, found.seed, found.rate) == (3, 6, 9, 0.5)  # flags count more


@pytest.mark.parametrize(
    ("changes", "flag", "message"),
    [
        ({"size": 9}, "--size=9", "size is 9, expected 2 to 8"),
        ({"stride": 0}, "--stride=0", "stride is 0, expected at least 1"),
        ({"rate": 0.0}, "--rate=0", "rate is 0.0, expected more than 0"),
        ({"widths": [2, 0]}, "--widths=0", r"widths\[1\] is 0, expected at least 1"),
        ({"mode": "last"}, "--mode=last", "mode is 'last', expected one of fast, slow"),
    ],
)
def test_flags_and_checks_have_the_same_limits(changes, flag, message):
    check_fields(Options("x"))
    with pytest.raises(UserError, match=message):
        check_fields(Options("x", **changes))
    with pytest.raises(flags.IllegalFlagValueError, match=flag.removeprefix("--")):
        parsed("--output_dir=x", flag)

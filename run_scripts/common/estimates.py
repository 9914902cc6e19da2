"""What the scripts have in common that reckon what a run needs: their settings as flags, their tables."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from absl import flags

from xlnet_tf.records.shards import framed_bytes
from xlnet_tf.records.spec import RecordSpec


def setting(default, meaning: str, choices=None, *, zero: bool = False, most: float | None = None):
    """Returns a field of a settings dataclass, which is a flag, too.

    Args:
        default: of the field and the flag.
        meaning: the flag's help.
        choices: the texts allowed; None: it is a number.
        zero: whether the number may be 0; it is never below.
        most: largest number allowed.
    """
    metadata = {"help": meaning, "choices": choices, "zero": zero, "most": most}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Records:
    """A set of pretraining records of a corpus, by default the paper's; each field is a flag."""

    text_gb: float = setting(158.0, "GB of text in the corpus, unpacked")
    pieces: float = setting(32.9e9, "tokens of the corpus")
    num_passes: int = setting(16, "times that the text is sampled")
    directions: int = setting(2, "1: forward; 2: forward and backward", most=2)
    seq_len: int = setting(512, "tokens of a segment")
    reuse_len: int = setting(256, "tokens that a segment shares with the next one")
    num_predict: int = setting(85, "targets of a segment")
    slice_mb: float = setting(32.0, "MB of text in a unit of work")

    def record_bytes(self, vocab_size: int) -> int:
        """Returns the bytes of a record with its frame.

        Args:
            vocab_size: pieces of the tokenizer.

        Raises:
            UserError: there are no such records.
        """
        return framed_bytes(RecordSpec(self.seq_len, self.reuse_len, self.num_predict, vocab_size))

    @property
    def records_of_pass(self) -> float:
        """Records of one pass, but for the ends of units."""
        return self.directions * self.pieces / (self.seq_len - self.reuse_len)

    @property
    def units(self) -> float:
        """Units of work that the text is cut into."""
        return self.text_gb * 1e3 / self.slice_mb

    @property
    def shards(self) -> float:
        """Shards of all passes: a unit makes one of each."""
        return self.units * self.num_passes


def define_flags(cls: type) -> None:
    """Defines a flag for each field of a dataclass of settings."""
    define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}
    for field in dataclasses.fields(cls):
        limits = field.metadata
        if choices := limits["choices"]:
            flags.DEFINE_enum(field.name, field.default, list(choices), limits["help"])
            continue
        define[field.type](
            field.name, field.default, limits["help"], lower_bound=0, upper_bound=limits["most"]
        )
        if not limits["zero"]:
            flags.register_validator(field.name, bool, "expected more than 0")


def from_flags(cls: type, given_only: bool = False) -> dict[str, Any]:
    """Returns the values of the flags of a dataclass of settings.

    Args:
        cls: the dataclass.
        given_only: whether to leave out flags that were not given.
    """
    asked = [flags.FLAGS[field.name] for field in dataclasses.fields(cls)]
    return {flag.name: flag.value for flag in asked if flag.present or not given_only}


def table(parts: Mapping[str, Mapping[str, float]]) -> str:
    """Lays figures out for a person: part -> what -> how much; the unit is the last word of the name."""
    lines = []
    for part, values in parts.items():
        lines.append(part)
        lines += [f"  {name:<44}{value:>14,.{_digits(value)}f}" for name, value in values.items()]
    return "\n".join(lines)


def _digits(value: float) -> int:
    """Returns how many decimals show three significant digits."""
    return next((digits for digits, least in enumerate((100, 10, 1, 0.1)) if value >= least), 4)

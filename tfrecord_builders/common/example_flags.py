"""What the commands that build examples have in common: flags, and the way from flags to options."""

import dataclasses
from typing import Any, TypeVar

from absl import flags

Options = TypeVar("Options")


def define(options_type: type) -> dict[str, Any]:
    """Defines the flags that all of these commands have.

    Args:
        options_type: the command's dataclass of options.

    Returns:
        The defaults of all of its options by name.
    """
    default = {field.name: field.default for field in dataclasses.fields(options_type)}
    flags.DEFINE_string("tokenizer", None, "SentencePiece model of the checkpoint to fine-tune")
    flags.DEFINE_string("output_dir", None, "folder for the examples, one folder in it for each split")
    flags.mark_flags_as_required(["tokenizer", "output_dir"])
    flags.DEFINE_bool("lower", default["lower"], "lower-case the text")
    flags.DEFINE_bool("keep_accents", default["keep_accents"], "keep accents (the released models drop them)")
    return default


def options(options_type: type[Options]) -> Options:
    """Returns the options that the parsed flags of the same names give."""
    return options_type(
        **{field.name: flags.FLAGS[field.name].value for field in dataclasses.fields(options_type)}
    )

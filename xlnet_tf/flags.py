"""From dataclass to flags and back: a field says once what it means, and becomes a flag of its name.

    @dataclasses.dataclass(frozen=True)
    class Options:
        output_dir: str = option("folder for the records")
        seq_len: int = option("tokens of a segment", 512, least=7)

`define_flags(Options)` in a main defines --output_dir (required) and --seq_len, `from_flags(Options)` returns
what they were given, and `check_limits(options)` holds values that come from elsewhere to the same limits.
A Setting is a flag for one field of an experiment, which files may set as well.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from xlnet_tf.errors import UserError

Options = TypeVar("Options")

_DEFINE = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    Sequence: flags.DEFINE_list,
}
_KINDS = {"string": str, "integer": int, "float": float, "boolean": bool}


class _PositiveParser(flags.FloatParser):
    """Parses numbers above 0."""

    def __init__(self, most: float | None = None):
        super().__init__(upper_bound=most)
        self.syntactic_help = "a positive number" + ("" if most is None else f" of at most {most:,}")

    def is_outside_bounds(self, val):
        return val <= 0 or super().is_outside_bounds(val)


def option(
    help: str,
    default: Any = dataclasses.MISSING,
    *,
    choices: Sequence[str] = (),
    least: float | None = None,
    most: float | None = None,
    positive: bool = False,
) -> Any:
    """Returns a field of a dataclass of options.

    Args:
        help: what it means; the flag's help.
        default: of the field and the flag; left out, both are required.
        choices: the texts allowed; empty: all.
        least, most: smallest and largest number allowed.
        positive: whether a number must be above 0.
    """
    metadata = {"help": help, "choices": choices, "least": least, "most": most, "positive": positive}
    return dataclasses.field(default=default, metadata=metadata)


def define_flags(cls: type) -> None:
    """Defines a flag for each `option` of a dataclass; for mains."""
    hints = typing.get_type_hints(cls)
    for field in filter(_is_option, dataclasses.fields(cls)):
        kind, limits, default = plain_type(hints[field.name]), field.metadata, field.default
        required = default is dataclasses.MISSING
        if required or default is None:
            default = None
        elif kind is Sequence:
            default = list(default)
        if limits["choices"]:
            flags.DEFINE_enum(field.name, default, list(limits["choices"]), limits["help"], required=required)
            continue
        bounds = {}
        if kind in (int, float):
            least = 1 if limits["positive"] and kind is int else limits["least"]
            bounds = {"lower_bound": least, "upper_bound": limits["most"]}
        if limits["positive"] and kind is float:
            parser = _PositiveParser(most=limits["most"])
            flags.DEFINE(parser, field.name, default, limits["help"], required=required)
        else:
            _DEFINE[kind](field.name, default, limits["help"], required=required, **bounds)


def from_flags(cls: type[Options], values: flags.FlagValues = flags.FLAGS, **defaults: Any) -> Options:
    """Returns the options that the flags were given; for mains.

    Args:
        cls: the dataclass.
        values: the parsed flags.
        **defaults: values of fields whose flags were not given, and of fields that are not flags.
    """
    defined = [values[field.name] for field in filter(_is_option, dataclasses.fields(cls))]
    given = {flag.name: flag.value for flag in defined if flag.present or flag.name not in defaults}
    return cls(**defaults | given)


def check_limits(options: Any) -> None:
    """Raises UserError if a field of a dataclass of options is not among its choices or out of its limits."""
    for field in filter(_is_option, dataclasses.fields(options)):
        value, limits = getattr(options, field.name), field.metadata
        choices, least, most = limits["choices"], limits["least"], limits["most"]
        if value is None:
            continue
        if choices and value not in choices:
            raise UserError(f"{field.name} is {value!r}, expected one of {', '.join(choices)}")
        if limits["positive"] and not value > 0:
            raise UserError(f"{field.name} is {value}, expected more than 0")
        if (least is not None and not value >= least) or (most is not None and not value <= most):
            expected = f"at least {least}" if most is None else f"{least} to {most}"
            expected = f"at most {most}" if least is None else expected
            raise UserError(f"{field.name} is {value}, expected {expected}")


def _is_option(field: dataclasses.Field) -> bool:
    return "help" in field.metadata


def plain_type(hint: Any) -> type:
    """Returns the type that an option's values have: int of `int | None`, Sequence of `Sequence[str]`."""
    if isinstance(hint, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    return typing.get_origin(hint) or hint


@dataclasses.dataclass(frozen=True)
class Setting:
    """A flag that sets one field of the experiment, or one option.

    Args:
        flag: the flag's name.
        field: path of the field in the experiment; empty: the flag is an option.
        kind: "string", "integer", "float", "boolean", or a tuple of the strings allowed.
        help: what it means.
        minimum: smallest number allowed.
        below: number that must not be reached.
    """

    flag: str
    field: str
    kind: str | tuple[str, ...]
    help: str
    minimum: float | None = None
    below: float | None = None

    def define(self):
        """Defines the flag; unset, it leaves the field as it is."""
        help_text = f"{self.help} Sets {self.field}." if self.field else self.help
        if isinstance(self.kind, tuple):
            flags.DEFINE_enum(self.flag, None, self.kind, help_text)
        else:
            _DEFINE[_KINDS[self.kind]](self.flag, None, help_text)

    def check(self, value: Any):
        """Raises UserError if the field must not have this value."""
        if value is None:
            return
        if self.kind == "integer" and type(value) is not int:
            raise UserError(f"{self.field} (--{self.flag}) is {value!r}: expected a whole number")
        if isinstance(self.kind, tuple) and value not in self.kind:
            raise UserError(f"{self.field} (--{self.flag}) is {value!r}: expected {', '.join(self.kind)}")
        if self.minimum is not None and value < self.minimum:
            raise UserError(f"{self.field} (--{self.flag}) is {value}: expected at least {self.minimum}")
        if self.below is not None and value >= self.below:
            raise UserError(f"{self.field} (--{self.flag}) is {value}: expected less than {self.below}")


SettingsOfTasks = Mapping[str, Mapping[str, Setting]]  # by flag and task, see task_registry.settings


def define_of_tasks(settings: SettingsOfTasks) -> None:
    """Defines flags that concern some tasks only, which their help names."""
    for of_tasks in settings.values():
        first = next(iter(of_tasks.values()))
        dataclasses.replace(first, help=f"{first.help} For {', '.join(of_tasks)}.").define()


def given_of_task(settings: SettingsOfTasks, task: str, values: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of a task's own settings whose flags are given, by flag.

    Raises:
        UserError: a flag is given that concerns other tasks only.
    """
    given = [flag for flag in settings if values[flag].present]
    for flag in given:
        if task not in settings[flag]:
            raise UserError(f"--{flag} is for {' and '.join(settings[flag])}, not for {task}: leave it out")
    return {flag: values[flag].value for flag in given}

"""Defines flags from dataclass fields: each option has its meaning, type and limits in one place.

    @dataclasses.dataclass(frozen=True)
    class Options:
        output_dir: str = option("folder for the records")
        seq_len: int = option("tokens of a segment", 512, least=7)

`define_flags(Options)` in a main defines --output_dir (required) and --seq_len, `from_flags(Options)` returns
their values, and `schema.check_fields(options)` checks values from elsewhere against the same limits. A
Setting is an option for one field of an experiment, which files may set as well.
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from xlnet_tf import schema
from xlnet_tf.errors import UserError
from xlnet_tf.schema import Limits

Options = TypeVar("Options")

_KINDS = {"string": str, "integer": int, "float": float, "boolean": bool}  # kinds in old settings


class _FloatParser(flags.FloatParser):
    """Parses numbers with limits that absl's own parser lacks."""

    def __init__(self, limits: Limits):
        super().__init__()
        self._limits = limits
        positive = "a positive number" if limits.above == 0 else f"a number of {limits}"
        self.syntactic_help = positive if limits.most is None else f"{positive} of at most {limits.most:,}"

    def is_outside_bounds(self, val):
        return not self._limits.allow(val)


class _Switch(flags.BooleanFlag):
    """A flag that is on, off or one of some words: --cache, --nocache, --cache=little."""

    def __init__(self, name: str, default: bool | str | None, help: str, words: Sequence[str]):
        super().__init__(name, default, help)
        self.parser = _SwitchParser(words)


class _SwitchParser(flags.BooleanParser):
    def __init__(self, words: Sequence[str]):
        super().__init__()
        self._words = words
        self.syntactic_help = " or ".join([", ".join(["true", "false", *words[:-1]]), words[-1]])

    def parse(self, argument):
        return argument if argument in self._words else super().parse(argument)


def option(
    help: str,
    default: Any = dataclasses.MISSING,
    *,
    choices: Sequence[str] = (),
    least: float | None = None,
    most: float | None = None,
    positive: bool = False,
    repeated: bool = False,
    flag: str = "",
    aliases: Sequence[str] = (),
    group: str = "",
) -> Any:
    """Returns a field of a dataclass of options; without a default, the field and the flag are required.

    Args:
        choices: the texts allowed; empty: all.
        least, most: limits of a number, or of each number of a list.
        repeated: whether the flag is given once per item; commas then do not separate items.
        flag: the flag's name if it differs from the field's.
        aliases: earlier names of the flag.
        group: one of help_screen.GROUPS, if the first screen of --help is to have the flag.
    """
    limits = Limits(tuple(choices), least, most, above=0 if positive else None)
    names = {"flag": flag, "aliases": aliases, "repeated": repeated, "group": group}
    return dataclasses.field(default=default, metadata={"help": help, "limits": limits, **names})


def define_flags(*classes: type) -> None:
    """Defines a flag for each `option` of some dataclasses; for mains."""
    for cls in classes:
        hints = typing.get_type_hints(cls)
        for field in _options(cls):
            required = field.default is dataclasses.MISSING
            _define(
                _flag_name(field),
                hints[field.name],
                field.metadata["help"],
                schema.limits_of(field),
                None if required else field.default,
                required=required,
                repeated=field.metadata["repeated"],
            )
            flags.FLAGS[_flag_name(field)].group = field.metadata["group"]  # see cli/help_screen.py
            for alias in field.metadata["aliases"]:
                flags.DEFINE_alias(alias, _flag_name(field))


def from_flags(cls: type[Options], values: flags.FlagValues = flags.FLAGS, **defaults: Any) -> Options:
    """Returns the options as set by flags; `defaults` are for fields whose flags were not given."""
    defined = {field.name: values[_flag_name(field)] for field in _options(cls)}
    given = {name: flag.value for name, flag in defined.items() if flag.present or name not in defaults}
    return cls(**defaults | given)


def given(names: Iterable[str], values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """Returns the values of those of the flags that the command was given."""
    return {name: values[name].value for name in names if values[name].present}


def given_of(cls: type, values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """Returns the values of those flags of a dataclass of options that the command was given; for mains."""
    return given(map(_flag_name, _options(cls)), values)


def _options(cls: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(cls) if "help" in field.metadata]


def _flag_name(field: dataclasses.Field) -> str:
    return field.metadata["flag"] or field.name


def _define(
    name: str,
    hint: Any,
    help: str,
    limits: Limits,
    default: Any = None,
    *,
    required: bool = False,
    repeated: bool = False,
) -> None:
    meaning, arguments = schema.kind_of(hint), (name, default, help)
    kind = meaning.type
    if kind is typing.Literal:
        words = [choice for choice in meaning.limits.choices if isinstance(choice, str)]
        flags.DEFINE_flag(_Switch(*arguments, words))
    elif limits.choices:
        flags.DEFINE_enum(name, default, list(limits.choices), help, required=required)
    elif kind is Sequence and meaning.part.type is int:  # given once per number
        flags.DEFINE_multi_integer(*arguments, limits.least, limits.most, required=required)
    elif kind is Sequence:
        define = flags.DEFINE_multi_string if repeated else flags.DEFINE_list
        define(name, default if default is None else list(default), help, required=required)
    elif kind is int:
        least = limits.above + 1 if limits.least is None and limits.above is not None else limits.least
        most = limits.below - 1 if limits.most is None and limits.below is not None else limits.most
        flags.DEFINE_integer(*arguments, least, most, required=required)
    elif kind is float and (limits.above, limits.below) != (None, None):
        flags.DEFINE(_FloatParser(limits), *arguments, required=required)
    elif kind is float:
        flags.DEFINE_float(*arguments, limits.least, limits.most, required=required)
    else:
        {bool: flags.DEFINE_bool, str: flags.DEFINE_string}[kind](*arguments, required=required)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A flag that sets one field of the experiment, which files may set as well, or one option."""

    flag: str
    field: str  # path of the field in the experiment; empty: the flag is an option
    kind: Any  # type, or a tuple of the strings allowed; Literal[False, True, "word"] is on, off or a word
    help: str
    minimum: float | None = None
    below: float | None = None  # exclusive upper limit

    @property
    def hint(self) -> Any:
        return str if isinstance(self.kind, tuple) else _KINDS.get(self.kind, self.kind)

    @property
    def limits(self) -> Limits:
        return Limits(self.kind if isinstance(self.kind, tuple) else (), self.minimum, below=self.below)

    def define(self):
        """Defines the flag; unset, it leaves the field as it is."""
        help_text = f"{self.help} Sets {self.field}." if self.field else self.help
        _define(self.flag, self.hint, help_text, self.limits)

    def check(self, value: Any):
        """Raises UserError for a value that the field must not have."""
        if problem := schema.problem(f"{self.field} (--{self.flag})", value, self.hint | None, self.limits):
            raise UserError(problem)


SettingsOfTasks = Mapping[str, Mapping[str, Setting]]  # by flag and task, see task_registry.settings


def define_of_tasks(settings: SettingsOfTasks) -> None:
    """Defines the flags of some tasks only; their help names these tasks."""
    for of_tasks in settings.values():
        first = next(iter(of_tasks.values()))
        dataclasses.replace(first, help=f"{first.help} For {', '.join(of_tasks)}.").define()


def check_task(settings: SettingsOfTasks, names: Iterable[str], task: str) -> None:
    """Raises UserError if any of these flags is for other tasks only."""
    for flag in names:
        if task not in settings[flag]:
            raise UserError(f"--{flag} is for {' and '.join(settings[flag])}, not for {task}: leave it out")

"""The first screen of a command's --help: the flags that most people need, by group, with their values."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from absl import flags
from typing_extensions import Self

ALL = "--help=all"
ADVANCED = "advanced"
# Of flags that an option defines, in the order in which they are shown.
GROUPS = ("data", "model", "examples", "answers", "server", "output")


@dataclasses.dataclass(frozen=True)
class HelpScreen:
    """What --help shows first; --help=all adds the other flags, under `advanced`.

    A command's main module has it as HELP_SCREEN; else it follows from the groups of the command's options.
    """

    groups: Mapping[str, Sequence[str]]  # names of flags by group, in the order in which they are shown
    # From the parsed flags to the values that others will have, in words
    values: Callable[[flags.FlagValues], Mapping[str, str]] = lambda _: {}

    @classmethod
    def of_options(cls, flags_of_command: Sequence[flags.Flag]) -> Self | None:
        """Returns the screen of flags whose options name their group; None if none does."""
        of_flags = {flag.name: getattr(flag, "group", "") for flag in flags_of_command}
        used = [group for group in GROUPS if group in of_flags.values()]
        groups = {group: [name for name in of_flags if of_flags[name] == group] for group in used}
        return cls(groups) if groups else None

    def sections(self, names: Sequence[str], everything: bool) -> dict[str, list[str]]:
        sections = {group: [name for name in flags if name in names] for group, flags in self.groups.items()}
        shown = {name for section in sections.values() for name in section}
        if everything:
            sections[ADVANCED] = [name for name in names if name not in shown]
        return sections

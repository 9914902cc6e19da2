"""Completes commands, flags and their values with the Tab key of a shell.

The shell runs the program with the line in its environment, and argcomplete prints the possible next words.
"""

import argparse
import os
from collections.abc import Iterable, Mapping

from absl import flags

SHELLS = ("bash", "zsh", "fish")
_BEFORE_ARGUMENTS = "_ARGCOMPLETE"  # set by the shell: the number of words of the command


def script(program: str, shell: str) -> str:
    """Returns the code that a shell evaluates to complete a program."""
    import argcomplete  # here and below: running a command should not import it

    return argcomplete.shellcode([program], shell=shell)


def typed_words() -> list[str]:
    """Returns the words before the one to complete, the program first; none unless a shell asks."""
    if _BEFORE_ARGUMENTS not in os.environ:
        return []
    from argcomplete.lexers import split_line

    return split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]


def set_command(words: int) -> None:
    """Sets the number of words (with the program) of the command whose flags are completed."""
    os.environ[_BEFORE_ARGUMENTS] = str(words)


def complete_word(next_words: Mapping[str, str]) -> None:
    """Prints the possible next words and their meanings for the shell, and exits."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_subparsers()
    for word, meaning in next_words.items():
        group.add_parser(word, help=meaning)
    set_command(len(typed_words()))
    _complete(parser)


def complete_flags(known: Iterable[flags.Flag]) -> None:
    """Prints the possible next flags or values of flags for the shell, and exits."""
    from argcomplete.completers import ChoicesCompleter

    parser = argparse.ArgumentParser()
    for flag in known:
        if flag.boolean:
            for name in (flag.name, f"no{flag.name}"):
                parser.add_argument(f"--{name}", help=flag.help, action="store_true")
            continue
        values = flag.parser.enum_values if isinstance(flag, flags.EnumFlag) else None
        action = "append" if isinstance(flag, flags.MultiFlag) else "store"
        argument = parser.add_argument(f"--{flag.name}", help=flag.help, action=action, choices=values)
        if "string" not in flag.flag_type():
            argument.completer = ChoicesCompleter(())  # no file is a number
    _complete(parser)


def _complete(parser: argparse.ArgumentParser) -> None:
    import argcomplete

    argcomplete.autocomplete(parser)

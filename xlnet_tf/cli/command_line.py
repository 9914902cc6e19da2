"""The command line of all commands: a --help with all flags, and one-line errors for wrong arguments."""

import difflib
import itertools
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from absl import flags

from xlnet_tf.cli import help_screen, shell_completion
from xlnet_tf.cli.help_screen import HelpScreen

# Flags of the original's, Model Garden's and Hugging Face's scripts -> our names.
OTHER_NAMES = {
    "bf16": "dtype",
    "bi_data": "bidirectional",
    "clip": "clip_norm",
    "decay_method": "decay",
    "do_lower_case": "lower",
    "doc_stride": "stride",
    "dropatt": "attention_dropout",
    "epochs": "train_steps",
    "eval_batch_size": "dev_batch_size",
    "eval_steps": "eval_interval",
    "fp16": "dtype",
    "gradient_accumulation_steps": "accumulation_steps",
    "gradient_checkpointing": "recompute",
    "init": "init_checkpoint",
    "input_file": "input",
    "input_glob": "input",
    "is_regression": "kind",
    "iterations": "steps_per_loop",
    "lr": "learning_rate",
    "lr_layer_decay_rate": "layer_decay",
    "max_query_length": "max_question_len",
    "max_save": "max_to_keep",
    "max_seq_length": "seq_len",
    "max_steps": "train_steps",
    "model": "init_checkpoint model_dir",
    "model_config_path": "init_checkpoint",
    "model_name_or_path": "init_checkpoint model_dir",
    "num_core_per_host": "num_gpus",
    "num_task": "num_workers",
    "num_train_epochs": "epochs",
    "output_dir": "model_dir",
    "per_device_eval_batch_size": "dev_batch_size",
    "per_device_train_batch_size": "batch_size",
    "record_info_dir": "train_data",
    "save_dir": "output_dir",
    "save_steps": "checkpoint_interval",
    "save_total_limit": "max_to_keep",
    "seq_length": "seq_len",
    "sp_model_file": "tokenizer",
    "sp_path": "tokenizer",
    "spiece_model_file": "tokenizer",
    "steps": "train_steps",
    "summary_type": "summary",
    "task": "num_workers",
    "task_name": "preset",
    "text": "input prompt",
    "train_batch_size": "batch_size",
    "train_file": "train data",
    "uncased": "lower",
    "use_bfloat16": "dtype",
    "use_tpu": "strategy",
    "validation_file": "dev",
}
# What people call tasks -> our names, which are values of --task and --head.
OTHER_TASKS = {
    "choice": "multiple_choice",
    "entailment": "classification",
    "ner": "tagging",
    "nli": "classification",
    "pos": "tagging",
    "qa": "question_answering",
    "race": "multiple_choice",
    "sentiment": "classification",
    "similarity": "regression",
    "squad": "question_answering",
    "token_classification": "tagging",
}


def parse(argv: Sequence[str], positional: str | None = None) -> list[str]:
    """Parses the flags of a command; the `flags_parser` of `absl.app.run`; returns the program alone.

    --help shows the command's docstring and every flag, whichever module defines it; absl shows only those
    of the main module. Of a command with a HelpScreen it shows the flags that most need; --help=all shows
    all. A command that needs arguments shows the same without any. Help exits with status 0, absl's other
    help flags, too. Wrong or missing arguments exit with status 1 and one line on stderr.

    `positional` is the flag that an argument without a name sets, if any.
    """
    values, problem, everything = flags.FLAGS, "", help_screen.ALL in argv
    argv = ["--help" if word == help_screen.ALL else word for word in argv]
    argv = _named(argv, positional, values) if positional else argv
    for name, short_name in (("help", "?"), ("helpshort", "h")):
        flags.DEFINE_boolean(name, False, "show this help", short_name=short_name, allow_override=True)
    required = _required(values)
    if shell_completion.typed_words():
        shell_completion.complete_flags(_flags_of_command(values))
    values.set_gnu_getopt()  # else flags after a positional argument are ignored
    try:
        rest = values(list(argv))
        problem = next(filter(None, map(_absurd, map(values.__getitem__, values))), "")
        if rest[1:]:
            problem = f"unexpected argument {rest[1]!r}: write --name=value, and quote values with spaces"
    except (flags.Error, ValueError) as error:
        problem = _problem(error, values, required) + _example(positional, values)
        if problem.startswith("missing:") and (index := _unnamed(argv, values)):
            problem += f"; {argv[index]!r} has no name: write --name=value"
    except SystemExit:  # of --helpfull and --helpxml, with status 1
        sys.exit()
    if values["help"].value or values["helpshort"].value:
        print(_help(values, required, everything))
        sys.exit()
    if problem:
        if len(argv) == 1:
            print(_help(values, required, False), flush=True)
        all_flags = help_screen.ALL if _screen(values) else "--help"
        sys.exit(f"ERROR: {' '.join(problem.split())} ({all_flags} describes all flags)")
    return rest


def _named(argv: Sequence[str], flag: str, values: flags.FlagValues) -> list[str]:
    """Puts the flag's name before the first argument that has none."""
    index = _unnamed(argv, values)
    return [*argv[:index], f"--{flag}={argv[index]}", *argv[index + 1 :]] if index else list(argv)


def _unnamed(argv: Sequence[str], values: flags.FlagValues) -> int:
    """Returns the index of the first argument that is neither a flag nor a flag's value; 0: none is."""
    for index, (before, word) in enumerate(itertools.pairwise(argv), 1):
        name = before.lstrip("-")
        is_value = before.startswith("-") and name in values and not values[name].boolean
        if not word.startswith("-") and not is_value:
            return index
    return 0


def require_one_of(*names: str) -> None:
    """Requires at least one of these flags; --help says so, too."""
    flags.register_multi_flags_validator(names, lambda values: any(values.values()), "expected one of them")


def _absurd(flag: flags.Flag) -> str:
    """Returns what is wrong with a flag whose number is NaN, infinite or above 64 bits; "" if nothing is."""
    for value in flag.value if isinstance(flag.value, list) else [flag.value]:
        if isinstance(value, float) and not math.isfinite(value):
            return f"--{flag.name}={value}: expected a finite number"
        if type(value) is int and not -(2**63) <= value < 2**63:
            return f"--{flag.name}={value}: expected a whole number between -2**63 and 2**63 - 1"
    return ""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns the known name that is most similar to a misspelt one; "" if none is."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.7)), "")


def did_you_mean(
    name: str, known: Mapping[str, str], others: Mapping[str, str] = OTHER_NAMES, between: str = "_"
) -> str:
    """Returns the end of a message that suggests known names for an unknown one; "" without a suggestion.

    `known` has the names with their form in the message, `others` those in other programs, each with ours,
    separated by blanks; `between` separates a name's parts.
    """
    likely = [other for other in others.get(name, "").split() if other in known]
    likely = likely or sorted(other for other in known if name in other.split(between))
    likely = likely or list(filter(None, [closest(name, known)]))
    return f": did you mean {' or '.join(known[other] for other in likely)}?" if likely else ""


def _required(values: flags.FlagValues) -> list[list[str]]:
    """Returns groups of flags of which one each must be given; validators fail as no flag is parsed yet."""
    groups = []
    for validator in {validator for name in values for validator in values[name].validators}:
        try:
            validator.verify(values)
        except flags.ValidationError:
            groups.append(list(validator.get_flags_names()))
    return sorted(groups, key=lambda names: (len(names), names))


def _problem(error: Exception, values: flags.FlagValues, required: Sequence[Sequence[str]]) -> str:
    """Returns what is wrong with the flags, and what would be right."""
    if isinstance(error, flags.UnrecognizedFlagError):
        tip = did_you_mean(error.flagname, {name: f"--{name}" for name in values})
        return f"there is no flag --{error.flagname}{tip}"
    missing = [names for names in required if not any(values[name].present for name in names)]
    if values.is_parsed() and missing:
        *names, last = map(_one_of, missing)
        joint = ", and " if names and len(missing[-1]) > 1 else ", "
        return f"missing: {joint.join(filter(None, [', '.join(names), last]))}"
    message = str(error).removeprefix("flag ").removeprefix("ERROR:: ")
    if not (found := re.match(r"--(\w+)=", message)) or not error.__context__:
        return message
    flag, given = values[found[1]], message.removesuffix(f": {error.__context__}")
    if isinstance(flag, flags.EnumFlag):
        known = flag.parser.enum_values
        tip = did_you_mean(given[found.end() :], {name: name for name in known}, OTHER_TASKS)
        return f"{given}: expected one of {', '.join(known)}{tip}"
    expected = _syntax(flag) or "true or false" * flag.boolean
    return f"{given}: expected {expected}" if expected else message


def _example(positional: str | None, values: flags.FlagValues) -> str:
    """Returns the docstring's shortest example if the command lacks its argument."""
    if not positional or values[positional].present:
        return ""
    lines = map(str.strip, (sys.modules["__main__"].__doc__ or "").splitlines())
    examples = sorted((line for line in lines if line.startswith("python -m ") and line[-1] != "\\"), key=len)
    return f"; for example: {spelled(examples[0])}" if examples else ""


def _one_of(names: Sequence[str]) -> str:
    first, *others = (f"--{name}" for name in names)
    if len(others) == 1:
        return f"either {first} or {others[0]}"
    return f"one of {', '.join([first, *others])}" if others else first


def _screen(values: flags.FlagValues) -> HelpScreen | None:
    """Returns what the command's --help shows first; None: all flags."""
    own = getattr(sys.modules["__main__"], "HELP_SCREEN", None)
    return own or HelpScreen.of_options(_flags_of_command(values))


def _help(values: flags.FlagValues, required: Sequence[Sequence[str]], everything: bool) -> str:
    """Returns the command's docstring and a paragraph for each flag, by group or the required ones first."""
    paragraphs = spelled(sys.modules["__main__"].__doc__ or "").rstrip().split("\n\n")
    text = ["\n\n".join(map(_wrapped, paragraphs)), ""]
    found = described(values, required)
    if screen := _screen(values):
        by_name = {re.sub(r"^--(\[no\])?| .*", "", name): (name, meaning) for name, meaning in found}
        used = screen.values(values)
        for group, names in screen.sections([*by_name], everything).items():
            text += [f"{group}:"]
            text += itertools.chain(*(_paragraph(*by_name[name], used.get(name, "")) for name in names))
        if not everything:
            return "\n".join([*text, "", f"{help_screen.ALL} describes all {len(found)} flags."])
        return "\n".join([*text, "", "--helpfull also shows absl's own flags."])
    text += ["flags:", *itertools.chain(*(_paragraph(name, meaning) for name, meaning in found))]
    return "\n".join([*text, "", "--helpfull also shows absl's own flags."])


def _paragraph(name: str, meaning: str, value: str = "") -> list[str]:
    """Returns the lines about a flag, and the value that it will have, if known."""
    return textwrap.wrap(
        f"{name}: {meaning}" + f" Will be: {value}." * bool(value),
        flags.get_help_width(),
        initial_indent="  ",
        subsequent_indent="      ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def spelled(text: str) -> str:
    """Replaces `python -m run_scripts.X` in a text by the user's way to call it."""
    return getattr(sys.modules["__main__"], "spelled", str)(text)


def described(
    values: flags.FlagValues, required: Sequence[Sequence[str]] | None = None
) -> list[tuple[str, str]]:
    """Returns the names and meanings of a command's flags, the required ones first and marked.

    `required` has groups of flags, of which one each must be given; None: the validators decide.
    """
    own = {flag.name: flag for flag in _flags_of_command(values)}
    marks = dict.fromkeys(own, "")
    for names in _required(values) if required is None else required:
        for name in names:
            mark = " (required)" if len(names) == 1 else f" (required: {_one_of(names)})"
            marks[name] = marks[name] or mark
    order = sorted(own, key=lambda name: (not marks[name], marks[name], name))
    return [(f"--{'[no]' * own[name].boolean}{name}{marks[name]}", _describe(own[name])) for name in order]


def _flags_of_command(values: flags.FlagValues) -> list[flags.Flag]:
    """Returns the flags that are neither absl's nor those for help."""
    defined = values.flags_by_module_dict().items()
    return [
        flag
        for module, of_module in defined
        if not module.startswith("absl.") and module != __name__
        for flag in of_module
    ]


def _wrapped(paragraph: str) -> str:
    """Wraps a paragraph to the terminal's width, unless it has commands or a table."""
    if re.search("^ ", paragraph, re.MULTILINE):
        return paragraph
    return textwrap.fill(paragraph, flags.get_help_width(), break_on_hyphens=False, break_long_words=False)


def _syntax(flag: flags.Flag) -> str:
    """Returns what values a flag takes, in words; absl's own text is like "integer >= -1"."""
    text = flag.parser.syntactic_help
    if match := re.fullmatch(r"(integer|number) (>=|<=) (\S+)", text):
        kind = {"integer": "an integer", "number": "a number"}[match[1]]
        return f"{kind} of at {'least' if match[2] == '>=' else 'most'} {match[3]}"
    return text


def _describe(flag: flags.Flag) -> str:
    """Returns a flag's help, its allowed values and its default."""
    text, notes = flag.help, [_syntax(flag)]
    if isinstance(flag, flags.EnumFlag):  # absl puts the values before the help, as one long word
        text = text.removeprefix(f"<{'|'.join(flag.parser.enum_values)}>: ")
        notes = [f"one of {', '.join(flag.parser.enum_values)}"]
    if isinstance(flag, flags.MultiFlag):  # absl puts a sentence after it
        text, notes = text.partition(";\n")[0], [*notes, "may be repeated"]
    if flag.default not in (None, "", []):
        values = flag.default if isinstance(flag.default, list) else [flag.default]
        spelled = ",".join(f"{value:.12g}" if isinstance(value, float) else str(value) for value in values)
        notes.append(f"default: {spelled.lower() if flag.boolean else spelled}")
    notes = "; ".join(filter(None, notes))
    text = _sentence(text, getattr(flag.parser, "enum_values", ()))
    return f"{text} ({notes})" if notes else text


def _sentence(text: str, values: Sequence[str]) -> str:
    """Returns a flag's help with a capital, unless it begins with a value or a format, and a full stop."""
    if (word := re.match(r"([a-z]+(-[a-z]+)?('s)?) ", text)) and word[1] not in values:
        text = text[0].upper() + text[1:]
    return text if not text or text[-1] in ".?!:" else f"{text}."

"""XLNet on TensorFlow 2: every command of the project in one program.

    xlnet-tf COMMAND --flag=value ...
    xlnet-tf COMMAND --help

`python -m run_scripts COMMAND` is the same.
"""

import fnmatch
import pathlib
import re
import runpy
import sys
from collections.abc import Sequence

import run_scripts
import tfrecord_builders
import xlnet_tf

try:
    from xlnet_tf import errors
    from xlnet_tf.cli import command_line, shell_completion
except ModuleNotFoundError as error:
    sys.exit(f"ERROR: the package {error.name} is not installed: pip install . in the checkout of xlnet-tf")

PROGRAM, BUILD, COMPLETION = "xlnet-tf", "build", "completion"
ALIASES = {"inspect-records": "inspect"}
# Commands of earlier versions -> what replaces them, in a checkout of the project.
MOVED = {
    "benchmark": "python -m benchmarks.step (or benchmarks.data)",
    **{
        f"benchmark-{name}": f"python -m benchmarks.{name}"
        for name in ("finetune", "generation", "learning", "load", "serving")
    },
    "launch": "sky jobs launch deploy/skypilot/tpu.yaml (docs/how-to/tpu-jobs.md)",
    "run-hlo": "python -m benchmarks.hlo",
    "demo": "make demo, or python -m examples.demo",
    **dict.fromkeys(
        ("tutorial", "tutorial-chinese-classification"), "python -m examples.chinese_classification"
    ),
}
REPLACED = {
    "corpus-plan": "sizing --build",
    "push": "convert-checkpoint MODEL --output=hf://OWNER/NAME",
    "verify-pretrained": "doctor MODEL",
}
# Scripts of the original and of Hugging Face, and what people try: our names of commands and kinds of sets.
OTHER_NAMES = {
    "choice": "race",
    "data-utils": "pretraining",
    "eval": "evaluate",
    "infer": "predict",
    "multiple-choice": "race",
    "ner": "tagging",
    "qa": "squad",
    "question-answering": "squad",
    "run-classifier": "finetune",
    "run-glue": "finetune",
    "run-ner": "finetune",
    "run-qa": "finetune",
    "run-race": "finetune",
    "run-squad": "finetune",
    "test": "evaluate",
    "train": "pretrain finetune train-tokenizer",
    "train-gpu": "pretrain",
    "train-tpu": "pretrain",
}
GROUPS = {
    "Text to records": ("train-tokenizer", f"{BUILD} *", "inspect", "convert-records"),
    "Training": ("pretrain", "adapt", "finetune", "evaluate", "predict"),
    "Trained models": (
        *("convert-checkpoint", "fill-mask", "score", "embed", "generate", "export", "serve"),
    ),
    "Machines": ("doctor", "sizing", "tpu-compile", "*"),
}


def commands() -> dict[str, str]:
    """Returns the module of each command; a command is one word, or `build` and another."""
    found = {}
    for package, before in ((run_scripts, ""), (tfrecord_builders, f"{BUILD} ")):
        folder = pathlib.Path(package.__path__[0])
        names = [path.stem for path in folder.glob("[!_]*.py")]
        names += [path.parent.name for path in folder.glob("*/__main__.py")]
        found |= {before + name.replace("_", "-"): f"{package.__name__}.{name}" for name in sorted(names)}
    return {ALIASES.get(name, name): module for name, module in found.items()}


def summary(module: str) -> str:
    """Returns the first line of a command's docstring, up to a colon, without importing the module."""
    package, name = module.split(".")
    folder = pathlib.Path(sys.modules[package].__path__[0])
    files = (folder / f"{name}.py", folder / name / "__main__.py")
    text = next(file for file in files if file.exists()).read_text(encoding="utf-8")
    return re.match(r'r?"""([^:;\n]*?)\.?[:;"\n]', text)[1]


def listing() -> str:
    """Returns what `xlnet-tf --help` prints: the commands by group, a line each."""
    left, text = commands(), [__doc__.rstrip()]
    for title, patterns in GROUPS.items():
        text += ["", f"{title}:"]
        for name in [name for pattern in patterns for name in fnmatch.filter(left, pattern)]:
            if name in left:
                text.append(f"  {name:<20}  {summary(left.pop(name))}")
    shells = "|".join(shell_completion.SHELLS)
    text += ["", f"`{PROGRAM} {COMPLETION} {shells}` prints what makes Tab complete commands and flags."]
    return "\n".join([*text, f"`{PROGRAM} --version` prints the version."])


def find(words: Sequence[str]) -> str:
    """Returns the listed command that the words begin with; "" if there is none."""
    known = commands()
    names = (" ".join(words[:count]).replace("_", "-") for count in (1, 2))
    return next((name for name in (ALIASES.get(name, name) for name in names) if name in known), "")


def spelled(text: str) -> str:
    """Rewrites the module commands in a text as commands of this program."""

    def command(match: re.Match[str]) -> str:
        before = f"{BUILD} " if match[1] == "tfrecord_builders" else ""
        name = match[2].replace("_", "-")
        return f"{PROGRAM} {before}{ALIASES.get(name, name)}"

    return re.sub(r"python -m (run_scripts|tfrecord_builders)\.(\w+)", command, text)


def next_words(words: Sequence[str]) -> dict[str, str]:
    """Returns the words that may follow the beginning of a command, and their meanings."""
    known = {name: summary(module) for name, module in commands().items()}
    known |= {f"{COMPLETION} {shell}": f"Completes in {shell}" for shell in shell_completion.SHELLS}
    known |= {BUILD: "Builds records", COMPLETION: "Completes commands in a shell"}
    begin = " ".join([*words, ""])
    return {
        name.removeprefix(begin).split()[0]: meaning
        for name, meaning in known.items()
        if name.startswith(begin)
    }


def answer(words: Sequence[str]) -> str:
    """Returns the text to print for words that are no command; exits with an error if they are wrong."""
    match words:
        case [] | ["--help" | "-h" | "-?" | "help"]:
            return listing()
        case ["--version"]:
            return f"{PROGRAM} {xlnet_tf.__version__}"
        case [first, shell] if first == COMPLETION and shell in shell_completion.SHELLS:
            return shell_completion.script(PROGRAM, shell)
        case ["help", *rest]:
            return answer(rest)
        case [first] | [first, "--help" | "help"] if first in (BUILD, COMPLETION):
            known = next_words([first])
            lines = [f"{PROGRAM} {first} {word:<16}{meaning}" for word, meaning in known.items()]
            more = ["", f"`{PROGRAM} {BUILD} TASK --help` describes the flags of one."] * (first == BUILD)
            return "\n".join(lines + more)
        case [first, given, *_] if first in (BUILD, COMPLETION):
            known = {word: f"{first} {word}" for word in next_words([first])}
        case [given, *_] if replaced := REPLACED.get(given.replace("_", "-")):
            sys.exit(f"ERROR: {given} is no longer a command of {PROGRAM}. Write: {PROGRAM} {replaced}")
        case [given, *_] if moved := MOVED.get(given.replace("_", "-")):
            sys.exit(f"ERROR: {given} is no longer a command of {PROGRAM}. In a checkout: {moved}")
        case [given, *_]:
            known = {name.removeprefix(f"{BUILD} "): name for name in commands()} | {COMPLETION: COMPLETION}
    tip = command_line.did_you_mean(given.replace("_", "-"), known, OTHER_NAMES, "-")
    if not tip and words[0] in (BUILD, COMPLETION):
        tip = f": expected {words[0]} {'|'.join(known)}"
    sys.exit(f"ERROR: there is no command {given!r}{tip} ({PROGRAM} --help lists all)")


def main() -> None:
    """Runs the command that the program's arguments name."""
    typed = shell_completion.typed_words()
    words = typed[1:] if typed else sys.argv[1:]
    if words[:1] == ["help"] and find(words[1:]):
        words = [*words[1:], "--help"]
    if not (name := find(words)):
        with errors.stdout_guard():
            if typed:
                shell_completion.complete_word(next_words(words))
            print(answer(words), flush=True)
        return
    count = len(name.split())
    if typed:
        shell_completion.set_command(1 + count)
    sys.argv[1:] = words[count:]
    try:
        runpy.run_module(commands()[name], {"spelled": spelled}, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("run_scripts", "tfrecord_builders", "xlnet_tf"):
            raise
        sys.exit(f"ERROR: {error}: {PROGRAM} doctor shows what is missing, and what installs it")


if __name__ == "__main__":
    main()

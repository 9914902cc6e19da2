"""Every command shows all its flags, at once, and says in one line what is wrong with those it is given."""

import ast
import functools
import pkgutil
import re

import pytest
from absl import flags

import run_scripts
import tfrecord_builders
from run_scripts import __main__ as run_scripts_main
from tests.conftest import REPOSITORY
from tests.helpers.command_flags import fresh_flags
from tests.helpers.commands import run_in_fork
from xlnet_tf.cli import command_line


def commands():
    """Returns the sources of the commands by name; all but xlnet-tf, which has none of its own flags."""
    sources = {}
    for package in (run_scripts, tfrecord_builders):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            path = REPOSITORY.joinpath(*module.name.split("."))
            source = (path / "__init__.py" if module.ispkg else path.with_suffix(".py")).read_text()
            if 'if __name__ == "__main__":' in source and module.name != "run_scripts.__main__":
                sources[module.name.removesuffix(".__main__")] = source
    return sources


COMMANDS = commands()


def flags_read(source):
    """Returns the names that a script reads of its flags."""
    nodes = [*ast.walk(ast.parse(source))]
    methods = {node.func for node in nodes if isinstance(node, ast.Call)}
    reads = [node for node in nodes if isinstance(node, ast.Attribute) and node not in methods]
    owners = {"FLAGS", "flags.FLAGS", "values"}
    return {read.attr for read in reads if ast.unparse(read.value) in owners and read.attr.islower()}


@functools.cache
def help_of(command):
    """Returns --help of a command, ended, and the names of the flags that it prints."""
    done = run_in_fork(command, "--help=all")
    return done, set(re.findall(r"^  --(?:\[no\])?(\w+)[:( ]", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_flag_and_loads_no_tensorflow(command):
    done, names = help_of(command)
    assert (done.returncode, done.stderr, done.heavy) == (0, "", [])
    assert names == set(done.flags) - {"help", "helpshort"}
    assert flags_read(COMMANDS[command]) <= names


# Commands with a model that is not there.
OF_MODELS = (
    "convert_checkpoint --input={} --output=a",
    "convert_checkpoint --input={} --output=hf://me/b",
    "doctor --model_dir={}",
    "embed --model_dir={} --text=ba",
    "evaluate --model_dir={} --data=records/dev",
    "export --model_dir={} --output_dir=served",
    "fill_mask --model_dir={} --text=<mask>",
    "generate --model_dir={} --prompt=ba",
    "predict --model_dir={} --input=text=ba",
    "score --model_dir={} --text=ba",
)


@pytest.mark.parametrize(
    "command",
    [
        *(command.format("absent/a/b") for command in OF_MODELS),
        "adapt --init_checkpoint=absent --input=texts --model_dir=run",
        "adapt --init_checkpoint=docs --input=absent.txt --model_dir=run",
        "adapt --init_checkpoint=docs --input=README.md --model_dir=run --task_data=absent",
        "finetune --data=absent --model_dir=run",
        "pretrain --train_data=absent --model_dir=run",
        "pretrain --config_file=micro --init_checkpoint=runs/absent --model_dir=run",
        "serve --model=absent",
        "tpu_compile --data=absent",
        "tpu_compile --export=absent",
        "tpu_compile --config_file=absent.yaml",
    ],
)
def test_what_is_not_there_is_named_before_tensorflow_is_loaded(command):
    name, *arguments = command.split()
    done = run_in_fork(f"run_scripts.{name}", *arguments)
    assert (done.returncode, done.heavy) == (1, [])
    assert "absent" in done.stderr and done.stderr.count("\n") == 1


NAME = "hf://nobody/nothing"


@pytest.mark.parametrize(
    "command", [*(command.format(NAME) for command in OF_MODELS), f"serve --language_model={NAME}"]
)
def test_a_name_that_is_not_cached_is_reported_before_tensorflow_is_loaded(command):
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    name, *arguments = command.split()
    done = run_in_fork(f"run_scripts.{name}", *arguments)
    assert done.returncode == 1 and not done.heavy
    assert f"the cache lacks files of {NAME}, and HF_HUB_OFFLINE is set" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_the_flags_that_its_text_mentions(command):
    text, paragraphs = re.split("\n(?:flags|data|model|server):\n", help_of(command)[0].stdout, maxsplit=1)
    named = [other for other in COMMANDS if re.search(rf"\b{other.rpartition('.')[2]}\b", text)]
    known = set().union(*(help_of(other)[1] for other in [command, *named]))
    mentioned = re.findall(r"(?<=[\s(`])--(\w+)", text)
    assert {name if name in known else name.removeprefix("no") for name in mentioned} <= known
    prose = [part for part in text.split("\n\n") if not re.search("^ ", part, re.MULTILINE)]
    assert all(len(line) <= 80 for part in prose for line in part.splitlines())
    assert not re.search("^python -m", text, re.MULTILINE)
    everything = re.sub(r" \(required[^)]*\)", "", help_of(command)[0].stdout)
    meanings = re.findall(r"^  --[^:]*: ([a-z]+) ", everything, re.MULTILINE)  # sentences
    assert set(meanings) <= {"length", "permutation", "table"}  # values of their flags
    # Lines are broken between words only, and those of examples stay as they are.
    assert not re.search(r"-$", paragraphs, re.MULTILINE) and not re.search(r"\S {4,}--", text)


def test_help_shows_required_flags_first_and_defaults_and_values():
    shown = run_in_fork("run_scripts.adapt", "--help").stdout.partition("\nflags:\n")[2]
    names = re.findall(r"^  --(?:\[no\])?(\w+)", shown, re.MULTILINE)
    assert names[:3] == ["init_checkpoint", "input", "model_dir"]
    shown = run_in_fork("tfrecord_builders.squad", "--help").stdout.partition("\ndata:\n")[2]
    assert "  --train (required: one of --train, --dev, --test): " in shown and shown.count("(required") == 5
    shown = " ".join(run_in_fork("run_scripts.sizing", "--help").stdout.split())
    for limits in ("one of micro, tiny, base, large; default: large", "a positive number; default: 158"):
        assert f"({limits})" in shown
    assert "--[no]bidirectional" not in shown
    assert max(map(len, run_scripts_main.listing().splitlines())) <= 100
    error = run_in_fork("run_scripts.convert_checkpoint").stderr
    assert "for example: " in error and "\\" not in error  # a whole command


@pytest.mark.parametrize(
    "arguments",
    [["absent/a/b"], ["--json", "absent/a/b"], ["absent/a/b", "--json"], ["--model_dir", "absent/a/b"]],
)
def test_an_argument_without_a_name_stands_for_one_flag(arguments):
    with fresh_flags() as values:
        flags.DEFINE_string("model_dir", None, "", required=True)
        flags.DEFINE_bool("json", False, "")
        assert command_line.parse(["command", *arguments], positional="model_dir") == ["command"]
        assert (values.model_dir, values.json) == ("absent/a/b", "--json" in arguments)


@pytest.mark.parametrize(
    "flag", ["--help", "--helpshort", "-?", "-h", "--helpfull", "--helpxml", "--nostrict --help"]
)
def test_help_exits_with_status_0(flag):
    done = run_in_fork("run_scripts.convert_checkpoint", *flag.split())
    assert done.returncode == 0 and done.stderr == ""
    assert "dry_run" in done.stdout and ("alsologtostderr" in done.stdout) == (
        flag in ("--helpfull", "--helpxml")
    )


@pytest.mark.parametrize(
    "command, arguments, message",
    [
        ("pretrain", [], "missing: --model_dir, and one of --train_data, --config_file, --params_override"),
        ("convert_records", [], "missing: --input, --output_dir, and either --from or --to"),
        ("inspect_records", ["records"],
         "missing: one of --records, --examples, --tokens_of; 'records' has no name: write --name=value"),
        ("fill_mask", ["--modle_dir=a"], "there is no flag --modle_dir: did you mean --model_dir?"),
        ("pretrain", ["--data=a"], "there is no flag --data: did you mean --dev_data or --train_data?"),
        ("finetune", ["--lr=1"], "there is no flag --lr: did you mean --learning_rate?"),
        ("sizing", ["--colour=a"], "there is no flag --colour (--help"),
        ("fill_mask", ["--top_k=five"], "--top_k=five: expected an integer in the range [1, 256]"),
        ("fill_mask", ["--text", "two", "words", "--model_dir=a"], "unexpected argument 'words'"),
        ("finetune", ["--task=squad"], "--task=squad: expected one of classification, multi_label, "
         "regression, question_answering, multiple_choice, tagging, ranking: did you mean question"),
        ("pretrain", ["--dry_run=a: b"], "--dry_run=a: b: expected true or false"),
        ("pretrain", ["--nodry_run=3"], "--nodry_run=3 does not take an argument"),
        ("sizing", ["--text_gb=0"], "--text_gb=0: expected a positive number"),
        ("pretrain", ["--model_dir=a", "--train_data=a", "--dropout=nan"], "--dropout=nan: expected a"),
        ("finetune", ["--model_dir=a", "--data=a", "--weight_decay=1e999"], "--weight_decay=inf: expected a"),
        ("pretrain", ["--dropout=1"], "--dropout=1: expected a number of at least 0 and less than 1"),
        ("generate", ["--model_dir=a", "--prompt=a", f"--seed={2**63}"], f"--seed={2**63}: expected a whole"),
        ("sizing", ["--flagfile=a/b"], "Unable to open flagfile"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_line(command, arguments, message):
    done = run_in_fork(f"run_scripts.{command}", *arguments)
    assert done.returncode == 1 and (done.stdout == "") == bool(arguments)
    assert done.stderr.startswith(f"ERROR: {message}") and done.stderr.count("\n") == 1
    assert re.search(r"\(--help(=all)? describes all flags\)\n$", done.stderr)


@pytest.mark.parametrize("name", sorted(run_scripts_main.commands()))
def test_help_before_and_after_a_command_and_a_command_alone_agree(name):
    module = run_scripts_main.commands()[name]
    first = run_in_fork("run_scripts", *name.split(), "--help").stdout
    if name in ("build squad", "predict"):
        assert run_in_fork("run_scripts", "help", *name.split()).stdout == first
    required = re.findall(r"^  --(\w+) \(required\)", help_of(module)[0].stdout, re.MULTILINE)
    if required:
        alone = run_in_fork("run_scripts", *name.split())
        assert (alone.stdout, alone.returncode) == (first, 1)
        assert set(required) <= {*re.findall(r"^  --(\w+)", first, re.MULTILINE)}


def test_commands_of_many_flags_have_a_first_screen():
    listed = {name for name in COMMANDS if len(help_of(name)[1]) > 12}
    with_screen = {name for name in listed if "\nadvanced:\n" in help_of(name)[0].stdout}
    assert listed - with_screen <= {
        f"run_scripts.{name}" for name in ("adapt", "doctor", "inspect_records", "sizing", "tpu_compile")
    } | {"run_scripts.convert_records"}


def test_the_first_screen_has_groups_and_the_values_that_will_be_used():
    recipe = run_in_fork("run_scripts.finetune", "--config_file=glue/rte", "--help").stdout
    shown = " ".join(recipe.split())
    assert re.findall(r"^(\w+):$", recipe, re.MULTILINE) == ["data", "model", "training", "output"]
    assert re.search("Peak learning rate.* Will be: (3e-05|0.00003) .glue/rte.", shown)
    assert "--adam_epsilon" not in shown and re.search(r"--help=all describes all \d+ flags", shown)
    rates = " ".join(run_in_fork("run_scripts.finetune", "--train=a.csv", "--help").stdout.split())
    assert "Will be: 0.001 for models narrower than 512, else 2e-05." in rates
    bare = run_in_fork("run_scripts.finetune")
    assert bare.stdout == run_in_fork("run_scripts.finetune", "--help").stdout and bare.returncode == 1
    everything = run_in_fork("run_scripts.finetune", "--help=all").stdout
    assert "\nadvanced:\n" in everything and "--adam_epsilon" in everything


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("sizing", ["--build", "--cores=8"], "--cores: only for the estimate of a run"),
        ("convert_checkpoint", ["--input=a", "--private"], "--private: for an upload to the hub"),
        ("doctor", ["--json"], "--text_file and --json are for the checks of a model"),
        ("doctor", ["one", "two"], "unexpected argument 'two'"),
    ],
)
def test_flags_without_effect_are_refused_and_second_arguments_without_a_name(command, arguments, message):
    done = run_in_fork(f"run_scripts.{command}", *arguments)
    assert done.returncode == 1 and done.stderr.startswith(f"ERROR: {message}")

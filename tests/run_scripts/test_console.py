"""xlnet-tf: every command in one program, found, explained and completed as it is typed."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys

import pytest

from run_scripts import __main__ as console
from tests.conftest import REPOSITORY
from tests.helpers.commands import run_in_fork
from tests.test_command_line import COMMANDS

xlnet_tf = functools.partial(run_in_fork, "run_scripts")


def test_every_command_is_listed_once_in_one_line_with_what_it_does():
    assert set(console.commands().values()) == set(COMMANDS)
    assert len(console.commands()) <= 24
    lines = [line for line in console.listing().splitlines() if re.match(r"  [a-z]", line)]
    listed = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines)
    assert len(lines) == len(listed) and set(listed) == set(console.commands())
    for name, module in console.commands().items():
        first = (ast.get_docstring(ast.parse(COMMANDS[module])) or "").partition("\n")[0]
        assert first.startswith(listed[name]) and re.match(r"[.:;]|$", first[len(listed[name]) :]), name
        assert len(listed[name]) > 15


@pytest.mark.parametrize(
    "words, found",
    [
        (["fill-mask", "--text=a"], "fill-mask"),
        (["fill_mask"], "fill-mask"),
        (["inspect", "--stats"], "inspect"),
        (["inspect-records"], "inspect"),
        (["build", "squad", "--dev=a"], "build squad"),
        (["build"], ""),
        (["common"], ""),
        ([], ""),
    ],
)
def test_commands_are_found_with_hyphens_and_underscores(words, found):
    assert console.find(words) == found


def test_help_and_version_name_this_program():
    alone = run_in_fork("run_scripts.fill_mask", "--help").stdout
    assert "    python -m run_scripts.fill_mask --model_dir" in alone
    shown = xlnet_tf("fill-mask", "--help").stdout
    assert shown == alone.replace("python -m run_scripts.fill_mask", "xlnet-tf fill-mask")
    assert "    xlnet-tf build squad --" in xlnet_tf("build", "squad", "--help").stdout
    assert xlnet_tf("help", "build").stdout == xlnet_tf("build", "help").stdout == xlnet_tf("build").stdout
    assert xlnet_tf("build").stdout.endswith("`xlnet-tf build TASK --help` describes the flags of one.\n")
    assert xlnet_tf("--version").stdout == "xlnet-tf 0.1.0\n"
    for words in ((), ("help",), ("--help",)):
        assert xlnet_tf(*words).stdout == console.listing() + "\n"
    assert xlnet_tf("fill-mask", "--topk").stderr.startswith("ERROR: there is no flag --topk: did you mean")
    assert xlnet_tf("fil-mask").returncode == 1


@pytest.mark.parametrize(
    "words, message",
    [
        ("pretrian --seed=1", "there is no command 'pretrian': did you mean pretrain?"),
        ("build ner", "there is no command 'ner': did you mean build tagging?"),
        ("build multiple-choice", "there is no command 'multiple-choice': did you mean build race?"),
        ("convert", "there is no command 'convert': did you mean convert-checkpoint or convert-records?"),
        ("run_classifier --do_train", "there is no command 'run_classifier': did you mean finetune?"),
        ("help build ner", "there is no command 'ner': did you mean build tagging?"),
        ("verify_pretrained a", "verify_pretrained is no longer a command of xlnet-tf. Write: xlnet-tf"),
        ("corpus-plan", "corpus-plan is no longer a command of xlnet-tf. Write: xlnet-tf sizing --build"),
        ("build x", "there is no command 'x': expected build classification|pretraining|race|"),
        ("completion tcsh", "there is no command 'tcsh': expected completion bash|zsh|fish"),
        ("--model_dir=a", "there is no command '--model_dir=a' (xlnet-tf --help lists all)"),
    ],
)
def test_wrong_commands_are_one_line(words, message):
    with pytest.raises(SystemExit, match=re.escape(f"ERROR: {message}")) as ended:
        console.answer(words.split())
    assert "\n" not in ended.value.code


def test_a_reader_that_ends_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    for arguments in ([], ["sizing"]):
        command = [sys.executable, "-m", "run_scripts", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=write, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(write)


COMPLETED = {
    "xlnet-tf pre": ["predict", "pretrain"],
    "xlnet-tf build ": ["classification", "pretraining", "race", "ranking", "squad", "tagging"],
    "xlnet-tf build sq": ["squad"],
    "xlnet-tf completion ": ["bash", "fish", "zsh"],
    "xlnet-tf fill-mask --m": ["--model_dir"],
    "xlnet-tf build squad --seq": ["--seq_len"],
    "xlnet-tf inspect_records --no": ["--nocheck", "--nojson", "--nostats"],
    "xlnet-tf pretrain --model_dir=a --dec": ["--decay"],
    "xlnet-tf pretrain --decay ": ["cosine", "linear"],
    "xlnet-tf pretrain --decay=c": ["cosine"],
    "xlnet-tf pretrain --model_dir=xlnet_": ["xlnet_tf/"],
    "xlnet-tf pretrain --train_steps ": [],
}
COMPLETE = """
    _python_argcomplete xlnet-tf
    echo "$COMP_LINE|${COMPREPLY[*]}"
"""


@pytest.mark.integration
@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_commands_flags_and_values():
    pytest.importorskip("argcomplete")
    script = f'xlnet-tf() {{ {sys.executable} -m run_scripts "$@"; }}; eval "$(xlnet-tf completion bash)"\n'
    for line in COMPLETED:
        script += f"COMP_LINE={line!r} COMP_POINT={len(line)} COMP_TYPE=9" + COMPLETE
    done = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(line.split("|") for line in done.stdout.splitlines())
    assert {line: sorted(words.split()) for line, words in found.items()} == COMPLETED
    for shell, begin in {"zsh": "#compdef xlnet-tf", "fish": "complete --com"}.items():
        assert begin in console.answer(["completion", shell])

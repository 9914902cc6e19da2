"""What users install: the pins, the Python versions, and the wheel, which works outside of the checkout."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import resources

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

import xlnet_tf
from tests import audit
from tests.audit import pins
from tests.conftest import REPOSITORY

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
# Names that the oldest Python lacks; the linter does not know them.
TOO_NEW = {
    "typing": {"Self", "assert_type", "assert_never", "LiteralString", "NotRequired", "TypeVarTuple"},
    "datetime": {"UTC"},
    "enum": {"StrEnum"},
    "contextlib": {"chdir"},
    "itertools": {"batched"},
    "hashlib": {"file_digest"},
}  # fmt: skip


def test_version_types_and_pythons_are_named_alike_everywhere():
    setuptools = PROJECT["tool"]["setuptools"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert setuptools["dynamic"]["version"] == {"attr": "xlnet_tf.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", xlnet_tf.__version__)
    assert "py.typed" in setuptools["package-data"]["xlnet_tf"]
    assert (resources.files("xlnet_tf") / "py.typed").is_file()
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]},<3.{int(PYTHONS[-1][2:]) + 1}"
    assert PROJECT["tool"]["ruff"]["target-version"] == "py310"
    assert PROJECT["tool"]["mypy"]["python_version"] == PYTHONS[0]
    makefile = (REPOSITORY / "Makefile").read_text()
    assert "(3, 10) <= sys.version_info < (3, 14)" in makefile and "--python-version 3.10" in makefile
    # Before version 23.1, pip runs the setup.py of a source archive itself, without what that needs.
    (install,) = re.findall(r".*--requirement requirements.lock", makefile)
    assert "--use-pep517" in install


def test_no_code_needs_a_newer_python_than_the_oldest():
    some = re.compile(r"except\*|" + "|".join(rf"\b{name}\b" for names in TOO_NEW.values() for name in names))
    found = []
    for folder in ("xlnet_tf", "tfrecord_builders", "run_scripts", "tests"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            if path != pathlib.Path(__file__) and some.search(path.read_text()):
                found += [f"{path.name}: {name}" for name in too_new(ast.parse(path.read_text()))]
    assert not found
    assert too_new(ast.parse("from typing import Any, Self; datetime.UTC")) == ["Self", "UTC"]


def too_new(tree):
    """Returns the names that the oldest Python lacks."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if alias.name in TOO_NEW.get(node.module, ())]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [node.attr] * (node.attr in TOO_NEW.get(node.value.id, ()))
        elif type(node).__name__ == "TryStar":
            found.append("except*")
    return found


def requirements(*extras):
    """Returns what the project and some of its extras ask for."""
    files = [REPOSITORY / f"requirements{extra}.txt" for extra in ("", *(f"-{extra}" for extra in extras))]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [Requirement(line.partition("  #")[0]) for line in lines if line and not line.startswith("#")]


def environment(python, machine):
    """Returns what markers of requirements ask for, of Linux."""
    other = {"python_version": python, "python_full_version": f"{python}.9", "platform_machine": machine}
    return default_environment() | other | {"sys_platform": "linux", "extra": ""}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_pins_each_package_once_for_every_python(python, machine):
    here = environment(python, machine)
    locked = [pin for pin, _ in pins() if not pin.marker or pin.marker.evaluate(here)]
    versions = {pin.name.replace("_", "-").lower(): str(pin.specifier)[2:] for pin in locked}
    assert len(versions) == len(locked) and all(hashes for _, hashes in pins())
    assert "://" not in (REPOSITORY / "requirements.lock").read_text()  # no index
    # What the Makefile puts into the lock.
    line = re.search(r"^LOCKED := (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)[1]
    for wish in requirements(*re.findall(r"requirements-([\w-]+)\.txt", line)):
        if not wish.marker or wish.marker.evaluate(here):
            assert wish.specifier.contains(versions[wish.name.replace("_", "-").lower()]), wish


def test_every_extra_is_one_of_the_package():
    files = {path.stem.removeprefix("requirements-") for path in REPOSITORY.glob("requirements-*.txt")}
    dynamic = PROJECT["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    assert set(dynamic) == files - {"demo"}  # the demo's text, which pip only unpacks
    assert {name: f"requirements-{name}.txt" for name in dynamic} == {
        name: value["file"][0] for name, value in dynamic.items()
    }


def chosen_python(folder, *, fine, arguments=()):
    """Returns which interpreter `make setup` takes where only some names work."""
    for name in ("python3.10", "python3.11", "python3.12", "python3.13", "python3"):
        script = folder / name
        script.write_text(f"#!/bin/sh\nexit {0 if name in fine else 1}\n")
        script.chmod(0o755)
    # `make PYTHON=... test` hands its own choice down.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
    done = subprocess.run(
        ["make", "--dry-run", "setup", f"VENV={folder}/venv", *arguments],
        cwd=REPOSITORY,
        env=environment | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    return re.search(r"\|\| (\S*) -m venv", done.stdout)[1]


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_make_takes_the_first_suitable_interpreter(tmp_path):
    assert chosen_python(tmp_path, fine={"python3.10", "python3.11", "python3.13"}) == "python3.11"
    assert chosen_python(tmp_path, fine={"python3.10", "python3.13"}) == "python3.13"
    assert chosen_python(tmp_path, fine={"python3.10"}) == "python3.10"
    assert chosen_python(tmp_path, fine={"python3"}) == "python3"
    assert chosen_python(tmp_path, fine={"python3.11"}, arguments=["PYTHON=/a/python"]) == "/a/python"


def audited(tmp_path, answer):
    """Returns what the audit says where pip-audit gives an answer for each database."""
    program = tmp_path / "pip-audit"
    program.write_text(f"#!{sys.executable}\nimport json, sys\n{answer}\n")
    program.chmod(0o755)
    return audit.vulnerabilities(str(program))


def test_an_audit_says_what_it_found_and_what_it_could_not_check(tmp_path):
    unreachable = "print(json.dumps({'dependencies': [{'name': 'a', 'skip_reason': 'x'}]}))"
    for answer in (unreachable, "sys.exit('ConnectionError')"):
        assert audited(tmp_path, answer)[0].startswith("vulnerabilities: NOT CHECKED")
    flaw = {"name": "b", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
    answer = [{"name": "a", "skip_reason": "x"}, {"name": "c", "version": "1", "vulns": []}]
    found = f"print(json.dumps({{'dependencies': {[*answer, flaw]}}})); sys.exit(1)"
    text, is_fine = audited(tmp_path, found)
    assert text == "vulnerabilities: 1 in 2 packages (pypi)\n  b 1: CVE-1, fixed in 2\n  not checked: a"
    assert not is_fine
    assert audited(tmp_path, f"print(json.dumps({{'dependencies': {answer}}}))")[1]
    listed = audit.licences().splitlines()
    assert sum(len(line.split(": ", 1)[1].split(", ")) for line in listed[1:]) == len(audit.here()) > 100
    assert any(re.match("  Apache.*tensorflow", line) for line in listed)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that `make wheel` builds of the last commit."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def build_wheel(folder, umask=0o022):
    """Builds the wheel into a folder."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("the wheel is built of a commit, and this is no checkout")
    command = ["make", "-o", "setup", "wheel", f"DIST={folder}", f"BIN={pathlib.Path(sys.executable).parent}"]
    subprocess.run(command, cwd=REPOSITORY, check=True, preexec_fn=lambda: os.umask(umask))
    [path] = folder.glob("*.whl")
    return path


@pytest.mark.integration
def test_the_wheel_is_the_same_whoever_builds_it(wheel, tmp_path):
    assert build_wheel(tmp_path, umask=0o077).read_bytes() == wheel.read_bytes()


@pytest.mark.integration
def test_the_wheel_has_recipes_types_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "xlnet_tf", "tfrecord_builders", "run_scripts", f"xlnet_tf-{xlnet_tf.__version__}.dist-info",
    }  # fmt: skip
    files = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "xlnet_tf", "tfrecord_builders", "run_scripts"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {name for name in names if "dist-info" not in name} == set(files)
    assert "xlnet_tf/py.typed" in names and "run_scripts/recipes/glue/sst-2.yaml" in names


@pytest.fixture
def installed(wheel, tmp_path):
    """Runs programs of an environment that has the wheel and the lock's packages, in an own folder."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    packages.joinpath("lock.pth").write_text(sysconfig.get_path("purelib"))  # not the .pth files in there
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    def run(program, *arguments):
        command = [environment / "bin" / program, *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run, folder


@pytest.mark.integration
def test_the_installed_wheel_goes_from_texts_to_answers(installed):
    run, folder = installed
    where = run("python", "-c", "import xlnet_tf, run_scripts as r; print(xlnet_tf.__file__, r.__file__)")
    assert where.count(f"{folder.parent}/environment/") == 2
    assert run("xlnet-tf", "--version") == f"xlnet-tf {xlnet_tf.__version__}\n"
    words = {"good": ("fine", "lovely", "great"), "bad": ("dull", "poor", "awful")}
    rows = [f"the {thing} was {word},{label}" for label, of_label in words.items() for word in of_label
            for thing in ("film", "play", "book", "song", "story", "dance", "show", "food")]  # fmt: skip
    (folder / "train.csv").write_text("\n".join(["text,label", *rows * 3]))
    texts = [row.partition(",")[0] for row in rows]
    texts.append("so it was, in the end, they said, all of them")  # exports want a piece for commas
    (folder / "corpus.txt").write_text("\n\n".join("\n".join(texts) for _ in range(40)))
    run("xlnet-tf", "train-tokenizer", "--input=corpus.txt", "--output_prefix=spiece", "--vocab_size=45")
    run("xlnet-tf", "build", "pretraining", "--input=corpus.txt", "--tokenizer=spiece.model",
        "--output_dir=records", "--seq_len=32", "--reuse_len=16", "--num_predict=5")  # fmt: skip
    run("xlnet-tf", "pretrain", "--config_file=micro", "--train_data=records", "--model_dir=pretrained",
        "--train_steps=2", "--warmup_steps=0", "--memory_len=16")  # fmt: skip
    run("xlnet-tf", "build", "classification", "--train=train.csv", "--dev=train.csv",
        "--tokenizer=spiece.model", "--output_dir=examples", "--seq_len=16")  # fmt: skip
    run("xlnet-tf", "finetune", "--config_file=classification_small", "--data=examples",
        "--model_dir=model", "--seed=1")  # fmt: skip
    run("xlnet-tf", "export", "--model_dir=model", "--output_dir=served/reviews", "--warmup_batches=1")
    answer = run("xlnet-tf", "predict", "--model_dir=model", "--input=text=the song was awful",
                 "--input=text=the play was lovely")  # fmt: skip
    first, second = re.findall(r"^probabilities +\S+ +(\S+)$", answer, re.MULTILINE)  # of good
    assert float(first) + 0.1 < float(second)

"""The doctor names what is missing and what installs it, and breaks off for nothing."""

import subprocess
import sys

import pytest

from run_scripts.doctor import checks
from run_scripts.doctor.checks import Package, TensorFlow
from tests.conftest import REPOSITORY

FINE = TensorFlow(devices=("CPU:0",), keras="tf_keras")
NAMES = (*checks.BUILDERS, *checks.SERVING, "safetensors")
KNOWN = [Package(name, "", "1.0", "", True) for name in NAMES]
KNOWN += [Package(extra, extra, "1.0", "", True) for extra in checks.EXTRAS]


def found(known=KNOWN, tensorflow=FINE):
    """Returns the abilities by name."""
    return {ability.name: ability for ability in checks.abilities(known, tensorflow)}


def without(name, version="", expected=""):
    """Returns the packages where one is missing or of a wrong version."""
    return [
        Package(name, package.extra, version, expected, False) if package.name == name else package
        for package in KNOWN
    ]


def test_where_all_is_well_nothing_that_is_needed_is_missing():
    abilities = found()
    assert not [ability for ability in abilities.values() if ability.needed and ability.missing]
    assert not [
        ability
        for ability in abilities.values()
        if ability.name in checks.EXTRAS.values() and ability.missing
    ]


@pytest.mark.parametrize("extra", checks.EXTRAS)
def test_an_extra_that_is_missing_is_named_and_not_needed(extra):
    ability = found(without(extra))[checks.EXTRAS[extra]]
    assert (ability.missing, ability.needed) == (extra, False)
    assert ability.command == f'pip install "xlnet-tf[{extra}]"'
    abilities = found([package for package in KNOWN if package.extra != extra])  # of an older installation
    assert abilities[checks.EXTRAS[extra]].missing == f"the extra {extra}"


def test_wrong_versions_are_named_with_what_is_expected():
    abilities = found(without("tensorflow-text", "2.19.0", "==2.20.1"))
    for name in ("have all packages that it needs", "export to TensorFlow Serving"):
        assert abilities[name].missing == "tensorflow-text 2.19.0 is not ==2.20.1" and abilities[name].needed
    assert not abilities["build records and examples"].missing


def test_a_missing_tensorflow_stops_training_but_not_building():
    abilities = found(tensorflow=TensorFlow(problem="ModuleNotFoundError: No module named 'tensorflow'"))
    training = abilities["train, fine-tune, evaluate, predict"]
    assert training.needed and "No module named 'tensorflow'" in training.missing
    assert training.command == "pip install xlnet-tf"
    assert not abilities["build records and examples"].missing


def test_keras_3_is_told_from_tf_keras():
    training = found(tensorflow=TensorFlow(devices=("CPU:0",), keras="keras"))[
        "train, fine-tune, evaluate, predict"
    ]
    assert training.missing == "tf.keras is keras, not tf_keras: unset TF_USE_LEGACY_KERAS"
    assert training.needed and not training.command


def test_a_gpu_that_tensorflow_sees_can_train():
    assert not found(tensorflow=TensorFlow(("CPU:0", "GPU:0"), "tf_keras"))["train on a GPU"].missing


@pytest.mark.parametrize(
    ("devices", "vendor", "expected"),
    [
        (["accel0", "accel1"], "0x8086", True),
        (["vfio/vfio", "vfio/0"], "0x1ae0", True),
        (["vfio/vfio", "vfio/12"], "0x10de", False),  # a GPU that a virtual machine uses
        (["vfio/vfio"], "0x1ae0", False),  # Google's network card
        (["accel"], "0x8086", False),
    ],
)
def test_tpu_chips_are_found_by_their_devices(tmp_path, devices, vendor, expected):
    for name, text in [*((f"dev/{name}", "") for name in devices), ("sys/bus/pci/devices/0/vendor", vendor)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert checks.has_tpu(str(tmp_path)) == expected


def test_a_project_that_is_not_installed_is_broken():
    [ability] = found(known=[]).values()
    assert ability.needed and "is not installed" in ability.missing


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("numpy>=1.0", ("numpy", "", ">=1.0", True)),
        ("numpy>=1000", ("numpy", "", ">=1000", False)),
        ('no-such-package==1; extra == "beam"', ("no-such-package", "beam", "==1", False)),
        ("numpy>=1; python_version < '3'", None),
        ("tensorflow[and-cuda]==2.20.0; extra == 'cuda'", ("tensorflow", "cuda", "==2.20.0", True)),
    ],
)
def test_requirements_are_read(monkeypatch, requirement, expected):
    monkeypatch.setattr(checks.metadata, "requires", lambda _: [requirement])
    packages = checks.packages()
    assert [(package.name, package.extra, package.expected, package.fits) for package in packages] == (
        [expected] if expected else []
    )


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import os; os.kill(os.getpid(), 4)", "its import ends with signal 4: is it for this processor?"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import time; time.sleep(60)", "its import takes more than 2 seconds"),
        ("import sys; sys.exit(3)", "no reason given"),
    ],
)
def test_whatever_importing_tensorflow_does_is_a_line(monkeypatch, code, problem):
    monkeypatch.setattr(checks, "_TENSORFLOW", code)
    monkeypatch.setattr(checks, "_SECONDS", 2)
    assert checks.tensorflow() == TensorFlow(problem=problem)


def test_memory_and_disk_are_within_their_totals():
    for free, total in (checks.memory(), checks.disk(".")):
        assert 0 < free <= total


@pytest.mark.integration
def test_without_tensorflow_the_doctor_says_so(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ModuleNotFoundError(\"No module named 'tensorflow'\")")
    command = [sys.executable, "-m", "run_scripts", "doctor"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert "  BROKEN  train, fine-tune, evaluate, predict\n" in done.stdout
    assert "  yes     build records and examples\n" in done.stdout

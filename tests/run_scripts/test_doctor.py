"""The doctor names what is missing and what installs it, and breaks off for nothing."""

import subprocess
import sys

import pytest

from run_scripts.doctor import checks
from run_scripts.doctor.checks import Package, TensorFlow
from tests.conftest import REPOSITORY

FINE = TensorFlow(devices=("CPU:0",), keras="tf_keras")
NAMES = (*checks.BUILDERS, *checks.SERVING, "safetensors")
KNOWN = {name: Package(name, "", "1.0", "", True) for name in NAMES}
KNOWN |= {extra: Package(extra, extra, "1.0", "", True) for extra in checks.EXTRAS}


def found(tensorflow=FINE, **changed):
    """Returns the abilities by name, where the packages of these names are others, or none."""
    packages = KNOWN | {name.replace("_", "-"): package for name, package in changed.items()}
    return {a.name: a for a in checks.abilities([*filter(None, packages.values())], tensorflow)}


def test_where_all_is_well_nothing_that_is_needed_is_missing():
    missing = {ability.name for ability in found().values() if ability.missing}
    assert not missing & {*checks.EXTRAS.values(), *(a.name for a in found().values() if a.needed)}
    assert not found(tensorflow=TensorFlow(("CPU:0", "GPU:0"), "tf_keras"))["train on a GPU"].missing


@pytest.mark.parametrize("extra", checks.EXTRAS)
def test_an_extra_that_is_missing_is_named_and_not_needed(extra):
    ability = found(**{extra: Package(extra, extra, "", "", False)})[checks.EXTRAS[extra]]
    assert (ability.missing, ability.needed) == (extra, False)
    assert ability.command == f'pip install "xlnet-tf[{extra}]"'
    assert found(**{extra: None})[checks.EXTRAS[extra]].missing == f"the extra {extra}"  # of an older version


TRAINING, ANSWERING = "train, fine-tune, evaluate, predict", "answer with exports for OpenVINO"


@pytest.mark.parametrize(
    ("tensorflow", "missing", "command"),
    [
        (TensorFlow(problem="No module named 'tensorflow'"), "tensorflow", "pip install xlnet-tf"),
        (TensorFlow(("CPU:0",), "keras"), "tf.keras is keras, not tf_keras: unset TF_USE_LEGACY_KERAS", ""),
    ],
)
def test_without_tensorflow_and_its_keras_nothing_is_trained_but_records_are_built(
    tensorflow, missing, command
):
    abilities = found(tensorflow=tensorflow)
    assert abilities[TRAINING].needed and missing in abilities[TRAINING].missing
    assert abilities[TRAINING].command == command
    assert not abilities["build records and examples"].missing


def test_openvino_without_tensorflow_is_an_installation_that_answers():
    problem = TensorFlow(problem="No module named 'tensorflow'")
    for has_openvino in (True, False):
        openvino = Package("openvino", "openvino", "1.0" * has_openvino, "", has_openvino)
        known = [*KNOWN.values(), Package("tensorflow", "", "", "==2.20.0", False)]
        known = [openvino if each.name == "openvino" else each for each in known]
        abilities = {each.name: each for each in checks.abilities(known, problem)}
        assert abilities[TRAINING].missing and abilities[TRAINING].needed != has_openvino
        assert bool(abilities[ANSWERING].missing) != has_openvino == abilities[ANSWERING].needed


def test_wrong_versions_are_named_with_what_is_expected():
    abilities = found(tensorflow_text=Package("tensorflow-text", "", "2.19.0", "==2.20.1", False))
    for name in ("have all packages that it needs", "export to TensorFlow Serving"):
        assert abilities[name].missing == "tensorflow-text 2.19.0 is not ==2.20.1" and abilities[name].needed
    assert not abilities["build records and examples"].missing


@pytest.mark.parametrize(
    ("devices", "vendor", "expected"),
    [
        (["accel0", "accel1"], "0x8086", True),
        (["vfio/vfio", "vfio/0"], "0x1ae0", True),
        (["vfio/vfio", "vfio/12"], "0x10de", False),  # a GPU that a virtual machine uses
        (["vfio/vfio"], "0x1ae0", False),  # Google's network card
    ],
)
def test_tpu_chips_are_found_by_their_devices(tmp_path, devices, vendor, expected):
    for name, text in [*((f"dev/{name}", "") for name in devices), ("sys/bus/pci/devices/0/vendor", vendor)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert checks.has_tpu(str(tmp_path)) == expected


def test_a_project_that_is_not_installed_is_broken():
    [ability] = checks.abilities([], FINE)
    assert ability.needed and "is not installed" in ability.missing


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("numpy>=1000", ("numpy", "", ">=1000", False)),
        ('no-such-package==1; extra == "beam"', ("no-such-package", "beam", "==1", False)),
        ("numpy>=1; python_version < '3'", None),
        ("tensorflow[and-cuda]==2.20.0; extra == 'cuda'", ("tensorflow", "cuda", "==2.20.0", True)),
    ],
)
def test_requirements_are_read(monkeypatch, requirement, expected):
    monkeypatch.setattr(checks.metadata, "requires", lambda _: [requirement])
    found = [(each.name, each.extra, each.expected, each.fits) for each in checks.packages()]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import os; os.kill(os.getpid(), 4)", "its import ends with signal 4: is it for this processor?"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import time; time.sleep(60)", "its import takes more than 2 seconds"),
    ],
)
def test_whatever_importing_tensorflow_does_is_a_line(monkeypatch, code, problem):
    monkeypatch.setattr(checks, "_TENSORFLOW", code)
    monkeypatch.setattr(checks, "_SECONDS", 2)
    assert checks.tensorflow() == TensorFlow(problem=problem)


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

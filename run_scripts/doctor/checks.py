"""Reports what this machine has and can run. Missing things never make it fail."""

import dataclasses
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

PROJECT = "xlnet-tf"
# In a process of its own: a TensorFlow that was built for another processor ends the process that imports it.
_TENSORFLOW = """
import json, xlnet_tf, tensorflow as tf
devices = [device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices()]
print(json.dumps({"devices": devices, "keras": tf.keras.Model.__module__.partition(".")[0]}))
"""
BUILDERS = ("absl-py", "etils", "google-crc32c", "numpy", "sentencepiece", "sentencex", "tqdm")
SERVING = ("tensorflow-text", "tensorflow-serving-api")
EXTRAS = {
    "hub": "fetch models by name from the Hugging Face hub",
    "datasets": "read data sets by name from the Hugging Face hub",
    "serve": "serve exported models without a container",
    "openvino": "export to OpenVINO",
    "beam": "build records with Apache Beam",
    "tpu-compile": "compile for a TPU without one",
    "docs": "build the documentation",
    "dev": "run the tests",
}
_GOOGLE = "0x1ae0"  # as a vendor of PCI devices
_SECONDS = 300  # that importing TensorFlow may take on a slow disk


@dataclasses.dataclass(frozen=True)
class Package:
    """A package that the project requires."""

    name: str  # in the index
    extra: str  # the extra that requires it; "" for the project itself
    version: str  # installed version; "" for none
    expected: str  # acceptable versions; "" for any
    fits: bool  # whether the installed version is acceptable


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    """TensorFlow's report after its import."""

    devices: Sequence[str] = ()  # names such as CPU:0
    keras: str = ""  # the package that tf.keras is; it should be tf_keras
    problem: str = ""  # why it cannot be imported; "" if it can


@dataclasses.dataclass(frozen=True)
class Ability:
    """Something that the project does."""

    name: str
    missing: str  # what it lacks here; "" for nothing
    command: str = ""  # installs that; "" if no command does
    needed: bool = False  # whether the project is broken without it


def packages() -> list[Package]:
    """Returns the packages that the project and its extras ask for on this machine."""
    try:
        return [*dict.fromkeys(filter(None, map(_package, metadata.requires(PROJECT) or [])))]
    except metadata.PackageNotFoundError:
        return []


def _package(requirement: str) -> Package | None:
    """Reads a requirement such as `jax==0.10.2; extra == "tpu-compile"`; None if it is for other machines."""
    name = re.match(r"[\w.-]+", requirement)[0]
    found = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
    extra = found[1] if found else ""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = ""
    try:
        from packaging.requirements import Requirement
    except ImportError:  # it comes with TensorFlow
        return Package(name, extra, version, "", bool(version))
    wanted = Requirement(requirement)
    if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
        return None
    fits = bool(version) and wanted.specifier.contains(version, prereleases=True)
    return Package(name, extra, version, str(wanted.specifier), fits)


def tensorflow() -> TensorFlow:
    """Imports TensorFlow in another process and returns its report."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", _TENSORFLOW]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return TensorFlow(problem=f"its import takes more than {_SECONDS} seconds")
    if done.returncode < 0:
        return TensorFlow(
            problem=f"its import ends with signal {-done.returncode}: is it for this processor?"
        )
    if done.returncode:
        return TensorFlow(problem=(done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return TensorFlow(**json.loads(done.stdout.splitlines()[-1]))


def memory() -> tuple[float, float]:
    """Returns the free and the total memory in GB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    file = pathlib.Path("/proc/meminfo")
    found = re.search(r"^MemAvailable: +(\d+) kB", file.read_text(), re.MULTILINE) if file.exists() else None
    return (int(found[1]) * 1024 / 1e9 if found else total), total


def disk(folder: str) -> tuple[float, float]:
    """Returns the free and the total GB of a folder's file system."""
    usage = shutil.disk_usage(folder)
    return usage.free / 1e9, usage.total / 1e9


def abilities(known: Sequence[Package], tensorflow: TensorFlow) -> Iterator[Ability]:
    """Yields the project's abilities, with what each lacks here."""
    if not known:
        yield Ability("be found by pip", f"it is not installed for {sys.executable}", "pip install .", True)
        return
    install = f"pip install {PROJECT}"
    without_openvino = lacking(known, "openvino", ("openvino",))
    # The small installation has OpenVINO without TensorFlow, and only answers.
    needed = bool(without_openvino) or all(each.version for each in known if each.name == "tensorflow")
    yield Ability("have all packages that it needs", lacking(known, ""), install, needed)
    yield Ability("build records and examples", lacking(known, "", BUILDERS), install, needed)
    problem = tensorflow.problem
    if not problem and tensorflow.keras != "tf_keras":
        problem = f"tf.keras is {tensorflow.keras}, not tf_keras: unset TF_USE_LEGACY_KERAS"
    yield Ability("train, fine-tune, evaluate, predict", problem, install * ("No module" in problem), needed)
    missing = lacking(known, "", SERVING)
    yield Ability("export to TensorFlow Serving", missing or problem, install * bool(missing), needed)
    yield Ability("convert Hugging Face's checkpoints", lacking(known, "", ("safetensors",)), install, needed)
    extra = f'pip install "{PROJECT}[openvino]"'
    yield Ability("answer with exports for OpenVINO", without_openvino, extra, not needed)
    yield Ability("train on a GPU", *_gpu(tensorflow))
    no_chip = "this machine has no TPU chip (--tpu=NAME reaches a TPU elsewhere)"
    yield Ability("train on this machine's TPU", "" if has_tpu() else no_chip)
    for extra, name in EXTRAS.items():
        yield Ability(name, lacking(known, extra), f'pip install "{PROJECT}[{extra}]"')


def lacking(known: Sequence[Package], extra: str, names: Sequence[str] = ()) -> str:
    """Returns the missing or wrong packages of an extra, or of those of some names."""
    asked = [package for package in known if package.extra == extra and (not names or package.name in names)]
    if not asked:
        return f"the extra {extra}"
    return ", ".join(
        f"{package.name} {package.version} is not {package.expected}" if package.version else package.name
        for package in asked
        if not package.fits
    )


def has_tpu(root: str = "/") -> bool:
    """Returns whether this machine has a TPU chip; `root` has the folders dev and sys."""
    if glob.glob(f"{root}/dev/accel[0-9]*"):
        return True
    # Newer TPU VMs give their chips to processes by VFIO, as other machines do with GPUs.
    vendors = {
        pathlib.Path(path).read_text().strip() for path in glob.glob(f"{root}/sys/bus/pci/devices/*/vendor")
    }
    return _GOOGLE in vendors and bool(glob.glob(f"{root}/dev/vfio/[0-9]*"))


def _gpu(tensorflow: TensorFlow) -> tuple[str, str]:
    """Returns why no GPU can be used, and the command that installs what is missing."""
    if any(device.startswith("GPU") for device in tensorflow.devices):
        return "", ""
    if not glob.glob("/dev/nvidia[0-9]*"):
        return "this machine has no NVIDIA GPU", ""
    return "TensorFlow does not see this machine's GPU", f'pip install "{PROJECT}[cuda]"'

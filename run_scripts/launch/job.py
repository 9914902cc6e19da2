"""What to train, where, and for how much money, as a yaml file says it."""

import dataclasses
import math
import os
import pathlib
import re
import shlex
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from run_scripts.common import experiment
from xlnet_tf import __version__, files
from xlnet_tf.command_line import closest
from xlnet_tf.errors import UserError
from xlnet_tf.flags import check_limits, option, plain_type
from xlnet_tf.training.tpu_slice import TpuSlice

TENSORFLOW = "2.20.0"
BACKENDS = ("queued-resource", "tpu-vm", "gke")
COMMANDS = ("pretrain", "finetune")
_MOST_HOURS = 87_600.0  # ten years; more is a slip, and some tools refuse such times
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_OWN_FLAGS = {  # of the command, that a launch adds
    "model_dir": "say model_dir: in the job's file",
    "strategy": "leave it out",
    "tpu": "leave it out",
    "dry_run": "leave it out; a launch begins with a dry run",
    "topology": "say accelerator: in the job's file",
    "flagfile": "write its flags here, as the TPU's machine does not have the file",
}
_DATA_FLAGS = ("train_data", "dev_data", "data")
# Names, settings, or paths, which then are of this machine.
_NAME_FLAGS = ("init_checkpoint", "model_config", "config_file")
_PATH_FLAGS = (*_NAME_FLAGS, "params_override")
# Images without a framework: https://docs.cloud.google.com/tpu/docs/runtimes (read 2026-11-24).
_IMAGES = {"v5e": "v2-alpha-tpuv5-lite", "v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"}
_OLD_IMAGE = "tpu-ubuntu2204-base"
_IMAGE_OF_TENSORFLOW = re.compile(r"tpu-vm-tf-(\d+\.\d+(?:\.\d+)?)(-pod)?(?:-\w+)?")
# https://docs.cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (read 2026-11-24).
_PLANE = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBE = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8"}
# Generation: (label of its nodes, topologies by chips, begin of its machine types).
GKE_ACCELERATORS = {
    "v4": ("tpu-v4-podslice", _CUBE, "ct4p-"),
    "v5p": ("tpu-v5p-slice", _CUBE, "ct5p-"),
    "v5e": ("tpu-v5-lite-podslice", _PLANE, "ct5lp-"),
    "v6e": ("tpu-v6e-slice", _PLANE, "ct6e-"),
}


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a run may use of a TPU, over all attempts."""

    hours: float | None = option(
        "hours that the TPU may exist, ready or in use", None, positive=True, most=_MOST_HOURS
    )
    money: float | None = option("what it may cost, in the currency of price_per_hour", None, positive=True)
    price_per_hour: float | None = option(
        "price of the whole slice (not of a chip) for an hour, from your price list", None, positive=True
    )

    @property
    def seconds(self) -> float:
        return 3600 * min(
            self.hours or math.inf, self.money / self.price_per_hour if self.money else math.inf
        )


@dataclasses.dataclass(frozen=True)
class Job:
    """A training and the TPU it needs; each field is a setting of the yaml file."""

    command: Sequence[str] = option("the training: pretrain or finetune, and its flags")
    model_dir: str = option("folder of the run, gs://BUCKET/...; a run has one, and one run at a time")
    project: str = option("project of Google Cloud")
    zone: str = option("zone, as us-west4-a; with gke the location of the cluster")
    accelerator: str = option("kind and size of the TPU: v5e-8, v3-32, ...")
    budget: Budget = option("{hours: 48}, or {money: 300, price_per_hour: 9.6}")
    name: str = option("name of what is created; default: that of the file", "")
    backend: str = option("what creates the TPU", "queued-resource", choices=BACKENDS)
    spot: bool = option("take a spot TPU: cheaper, and taken away at any time", False)
    runtime: str = option("TPU software version; default: by accelerator", "")
    package: str = option("a wheel of this machine (`make wheel`), or what pip installs", "")
    image: str = option("with gke: the container, built from deploy/Dockerfile", "")
    cluster: str = option("with gke: name of the cluster", "")
    namespace: str = option("with gke: the namespace", "default")
    topology: str = option("with gke: the arrangement of the chips; default: by accelerator", "")
    service_account: str = option("the TPU's service account; default: the project's", "")
    wait_hours: float = option(
        "how long to wait for a TPU, each time one is needed", 24.0, positive=True, most=_MOST_HOURS
    )
    steps_per_second: float | None = option("your own measurement, for the estimate", None, positive=True)
    until_budget: bool = option("start even if the budget ends before the training", False)
    other_region: bool = option("accept buckets outside of the TPU's region", False)

    @property
    def slice(self) -> TpuSlice:
        return TpuSlice.named(self.accelerator)

    @property
    def region(self) -> str:
        return "-".join(self.zone.split("-")[:2])

    def training(self, tpu: str) -> list[str]:
        """Returns the words of the command for Python's -m, on a TPU that it reaches by this name."""
        own = [f"--model_dir={self.model_dir}", "--strategy=tpu", f"--tpu={tpu}"]
        return [f"run_scripts.{self.command[0]}", *self.command[1:], *own]

    def paths(self) -> list[str]:
        """Returns the gs:// paths that the command reads."""
        found, flag = [], ""
        for word in self.command:
            if word.startswith("-"):
                flag, _, word = word.lstrip("-").partition("=")
            if flag in (*_DATA_FLAGS, *_NAME_FLAGS):  # its value, which may have spaces and commas
                found += [word] * word.startswith("gs://")
            else:
                found += re.findall(r"gs://[^,\n\"'\]}]*[^,\s\"'\]}]", word)
        return found


def load(path: str) -> Job:
    """Reads a job.

    Raises:
        UserError: a setting is unknown, missing or wrong; the message says what to write.
    """
    values = files.read_yaml(path)
    if isinstance(values.get("model_dir"), str):
        values["model_dir"] = values["model_dir"].rstrip("/")
    try:
        job = _build(Job, values, "")
        name = job.name or re.sub(r"[^a-z0-9-]+", "-", pathlib.Path(path).stem.lower()).strip("-")
        return _checked(dataclasses.replace(job, name=name, command=_command(job.command)))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _build(cls: type, values: Any, where: str) -> Any:
    """Returns the dataclass that a mapping spells, its fields of their types and in their limits."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            near = closest(str(name), fields)
            tip = f"did you mean {where}{near}?" if near else f"expected {', '.join(fields)}"
            raise UserError(f"there is no setting {where}{name}: {tip}")
    hints, made = typing.get_type_hints(cls), {}
    for name, field in fields.items():
        value = values.get(name)
        if value is None:
            if field.default is dataclasses.MISSING:
                raise UserError(f"{where}{name} is missing: {field.metadata['help']}")
            continue
        made[name] = _typed(hints[name], value, f"{where}{name}", field.metadata["help"])
    built = cls(**made)
    try:
        check_limits(built)
    except UserError as error:
        raise UserError(f"{where}{error}") from None
    return built


def _typed(hint: Any, value: Any, name: str, meaning: str) -> Any:
    """Returns a value of a field's type: an int serves as a float, and nothing else is converted."""
    kind = plain_type(hint)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise UserError(f"{name} is {value!r}: expected {meaning}")
        return _build(kind, value, f"{name}.")
    if kind is Sequence:
        if isinstance(value, str):
            try:
                return shlex.split(value)
            except ValueError as error:
                raise UserError(f"{name} cannot be split into words: {error}") from None
        if not isinstance(value, list) or not all(isinstance(word, str | int | float) for word in value):
            raise UserError(f"{name} is {value!r}: expected a command in one line, or a list of its words")
        return [str(word) for word in value]
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise UserError(f"{name} is too large: expected a smaller number") from None
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        expected = {str: "text", bool: "true or false", float: "a number"}[kind]
        raise UserError(f"{name} is {value!r}: expected {expected}")
    return value


def _command(words: Sequence[str]) -> list[str]:
    """Returns the words of a training without what started it: xlnet-tf, python -m run_scripts.X."""
    text = re.sub(r"^(?:\S*xlnet-tf\s|\S*python3?\s-m\srun_scripts[.\s])", "", "\n".join(words))
    name, *rest = text.split("\n") if text.strip() else [""]
    if name not in COMMANDS:
        near = closest(name, COMMANDS)
        tip = f": did you mean {near}?" if near else f": expected {' or '.join(COMMANDS)} and its flags"
        raise UserError(f"command begins with {name!r}{tip}")
    for index, word in enumerate(rest):
        flag, _, value = word.lstrip("-").partition("=")
        if word.startswith("-") and flag.removeprefix("no") in _OWN_FLAGS:
            raise UserError(f"command has --{flag}: {_OWN_FLAGS[flag.removeprefix('no')]}")
        value = value or (rest[index + 1] if index + 1 < len(rest) and "=" not in word else "")
        known = flag == "config_file" and value.removesuffix(".yaml") in experiment.recipes()
        local = flag in _DATA_FLAGS or (flag in _PATH_FLAGS and not known and os.path.exists(value))
        if flag == "config_file" and not local:
            experiment.settings_file(value)  # raises an error about a name that is no recipe's
        if word.startswith("-") and value and local and "://" not in value:
            raise UserError(
                f"command has --{flag}={value}, which the TPU's machine does not have: copy it into a bucket "
                f"(gcloud storage cp --recursive {value} gs://BUCKET/) and say --{flag}=gs://BUCKET/..."
            )
    return [name, *rest]


def _checked(job: Job) -> Job:
    """Returns the job with what its other settings imply, once nothing in it contradicts."""
    if not _NAME.fullmatch(job.name):
        raise UserError(
            f"name is {job.name!r}: expected up to 40 small letters, digits and dashes, a letter first "
            "(without name:, it is the file's)"
        )
    if not re.fullmatch(r"gs://[^/]+/.+", job.model_dir):
        raise UserError(
            f"model_dir is {job.model_dir!r}: expected gs://BUCKET/FOLDER, because the TPU's own disk is "
            "deleted with it"
        )
    if pattern := re.search(r"[*?#\[\]]", job.model_dir):
        raise UserError(
            f"model_dir is {job.model_dir!r}: expected a name without {pattern[0]}, which gcloud storage "
            "takes for a pattern"
        )
    if not re.fullmatch(r"[-.:\w]+", job.project):
        raise UserError(f"project is {job.project!r}: expected its id, as gcloud projects list shows it")
    gke = job.backend == "gke"
    if not re.fullmatch(rf"[a-z]+-[a-z]+\d+(-[a-z0-9]+){'?' if gke else ''}", job.zone):
        raise UserError(f"zone is {job.zone!r}: expected one like us-west4-a")
    if not (job.budget.hours or job.budget.money):
        raise UserError(
            "budget has neither hours nor money: say what the TPU may use, as budget: {hours: 24}"
        )
    if job.budget.money and not job.budget.price_per_hour:
        raise UserError("budget.money needs budget.price_per_hour, what the whole slice costs in an hour")
    if job.budget.seconds > 3600 * _MOST_HOURS:
        raise UserError(
            f"budget.money pays for more than {_MOST_HOURS:,.0f} hours at budget.price_per_hour: expected "
            "the price of the whole slice for an hour"
        )
    try:
        found = job.slice
    except UserError as error:
        raise UserError(str(error).replace("topology is", "accelerator is", 1)) from None
    if gke:
        return _checked_gke(job, found)
    for name in ("image", "cluster", "topology"):
        if getattr(job, name):
            instead = {
                "image": "the image of a TPU VM is runtime",
                "topology": "kind and size are accelerator",
            }
            hint = f"; {instead[name]}:" if name in instead else ""
            raise UserError(f"{name} is for backend: gke, and this job's is {job.backend}{hint}")
    runtime = job.runtime or default_runtime(found)
    if match := _IMAGE_OF_TENSORFLOW.fullmatch(runtime):
        if not TENSORFLOW.startswith(match[1]):
            raise UserError(
                f"runtime is {runtime}, which has TensorFlow {match[1]}, and this project needs "
                f"{TENSORFLOW}: leave runtime out, which takes {default_runtime(found)}"
            )
        if found.hosts > 1 and not match[2]:
            raise UserError(
                f"runtime is {runtime}, for one host, and {found.name} has {found.hosts}: add -pod"
            )
    elif found.hosts > 1:
        raise UserError(
            f"runtime is {runtime}, without TensorFlow's runtime for slices, and {found.name} has "
            f"{found.hosts} hosts: expected {default_runtime(found)}, which is the default"
        )
    if re.search(r"https?://[^/]*@|//[^/@]*:[^/]*@", job.package):
        raise UserError(
            "package has a user name or password in its address, which the machine's settings would show: "
            "expected a wheel of this machine (make wheel), or an address without them"
        )
    return dataclasses.replace(
        job, runtime=runtime, package=job.package or f"dist/xlnet_tf-{__version__}-py3-none-any.whl"
    )


def _checked_gke(job: Job, found: TpuSlice) -> Job:
    for name in ("image", "cluster"):
        if not getattr(job, name):
            raise UserError(f"{name} is missing: {Job.__dataclass_fields__[name].metadata['help']}")
    for name in ("runtime", "package"):
        if getattr(job, name):
            raise UserError(f"{name} is not for backend: gke, where image holds everything")
    if found.generation not in GKE_ACCELERATORS:
        raise UserError(f"accelerator is {found.name}: GKE has {', '.join(GKE_ACCELERATORS)}")
    topologies = GKE_ACCELERATORS[found.generation][1]
    topology = job.topology or topologies.get(found.chips, "")
    axes, sides = min(topologies.values()).count("x") + 1, topology.split("x")
    are_numbers = len(sides) == axes and all(side.isdecimal() for side in sides)
    if not are_numbers or math.prod(map(int, sides)) != found.chips:
        raise UserError(
            f"topology is {topology!r}: expected an arrangement of the {found.chips} chips of {found.name}, "
            "as 2x4 (v5e, v6e) or 2x2x1 (v4, v5p)"
        )
    return dataclasses.replace(job, topology=topology)


def default_runtime(found: TpuSlice) -> str:
    """Returns the TPU software version for a slice; one of several hosts needs TensorFlow's runtime."""
    if found.hosts == 1:
        return _IMAGES.get(found.generation, _OLD_IMAGE)
    return f"tpu-vm-tf-{TENSORFLOW}-pod-{'pjrt' if found.generation in _IMAGES else 'se'}"

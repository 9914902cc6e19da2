"""Settings that all trainings share: Model Garden's, with additions."""

import dataclasses
import difflib
import itertools
import operator
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from official.core import config_definitions as cfg
from official.modeling.hyperparams import params_dict

from xlnet_tf import files, schema
from xlnet_tf.config import Recompute
from xlnet_tf.errors import UserError
from xlnet_tf.training.optimizer import OptimizerConfig


@dataclasses.dataclass
class TrainerConfig(cfg.TrainerConfig):
    """Model Garden's trainer settings, with our optimizer and gradient accumulation.

    Attributes (those that have a flag are described in its help):
        optimizer_config: optimizer and schedule.
        max_skipped_steps: most steps that may be skipped in a row (loss or gradient infinite, NaN or a spike)
            before the run ends; it also ends if more than half of ten times as many were skipped.
        spike_factor: a step is skipped if its loss is more than this many times the usual one; 0: never.
        save_memory: keep the memory in checkpoints, so a resumed run equals an uninterrupted one; that takes
            L * M * D numbers a row, 155 GB at the paper's size. If false, a resumed run begins without it.
        async_checkpoints: write checkpoints while training continues, from a copy in the memory of the hosts;
            false saves that memory, and training waits until a checkpoint is written.
        check_data_gb: data up to this many gigabytes are compared with their checksums before the run begins,
            and after an error that they may have caused; some seconds per gigabyte. Larger data show damage
            when it is read, but not a shard of another set with records of the same size.
        check_memory: refuse to train if a step needs twice the memory of a machine without accelerator.
    """

    optimizer_config: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    accumulation_steps: int = 1
    recompute: Recompute = False
    max_skipped_steps: int = 10
    spike_factor: float = 0.0
    save_memory: bool = True
    async_checkpoints: bool = True
    patience: int = 0
    max_hours: float = 0.0
    check_data_gb: float = 50.0
    check_memory: bool = True
    profile_steps: str = ""
    train_steps: int = 10000
    steps_per_loop: int = 10
    summary_interval: int = 10
    checkpoint_interval: int = 1000
    validation_interval: int = 1000
    max_to_keep: int = 3
    recovery_max_trials: int = -1  # the guard handles losses that are NaN
    preemption_on_demand_checkpoint: bool = False  # TensorFlow's handler restores once more, on some workers


@dataclasses.dataclass
class RuntimeConfig(cfg.RuntimeConfig):
    """Model Garden's runtime settings; each has a flag, whose help describes it."""

    distribution_strategy: str = "one_device"
    num_gpus: int = -1
    virtual_devices: int = 0
    deterministic: bool = False
    mixed_precision_dtype: str = "float32"


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested settings: {"a": {"b": 1}} -> {"a.b": 1}; tuples become the lists that yaml keeps."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat


def override(params: cfg.ExperimentConfig, source: str | Mapping[str, Any], where: str):
    """Overrides settings by a mapping, a yaml file, or "trainer.train_steps=100,task.seed=1"."""
    values = source if isinstance(source, Mapping) else _read(source, where)
    known = params.as_dict()
    if unknown := [*_unknown(values, known)]:
        problems = "; ".join(f"there is no setting {name}{_tip(name, known)}" for name in unknown[:5])
        raise UserError(f"{where}: {problems}")
    try:
        params.override(values, is_strict=True)
    except (AttributeError, KeyError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{where}: a setting has not the form that is expected ({error})") from error


class _Loader(files.UniqueKeys, yaml.FullLoader):
    """A yaml loader without duplicate keys; Model Garden has taught FullLoader that 1e-4 is a number."""


def _read(source: str, where: str) -> Mapping[str, Any]:
    try:
        text = params_dict.nested_csv_str_to_json_str(source)
    except ValueError:  # no NAME=VALUE: yaml, or a path
        text = source
    try:
        values = yaml.load(text, _Loader) or {}
        if not isinstance(values, Mapping):
            where = f"{where}={source}"
            values = yaml.load(files.read_text(source), _Loader) or {}
    except FileNotFoundError:
        tip = "write settings as NAME=VALUE,NAME=VALUE, or give the path of a yaml file"
        if "," in source:
            tip += "; of several files, give each with a flag of its own"
        raise UserError(f"{where}: there is no such file; {tip}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: {' '.join(str(error).split())}") from error
    if not isinstance(values, Mapping):
        raise UserError(f"{where} holds a {type(values).__name__}; expected settings by their names")
    return values


def _unknown(values: Mapping[str, Any], known: Mapping[str, Any], section: str = "") -> Iterator[str]:
    for name, value in values.items():
        if name not in known:
            yield f"{section}{name}"
        elif isinstance(value, Mapping) and isinstance(known[name], Mapping):
            yield from _unknown(value, known[name], f"{section}{name}.")


def _tip(name: str, known: Mapping[str, Any]) -> str:
    """Returns the setting that an unknown name may mean, in its section or in any; else the section's."""
    section, _, field = name.rpartition(".")
    settings = (itertools.accumulate(full.split("."), "{}.{}".format) for full in flatten(known))
    every = dict.fromkeys(itertools.chain.from_iterable(settings))  # sections, too
    siblings = {full.rpartition(".")[2]: full for full in every if full.rpartition(".")[0] == section}
    anywhere = {full.rpartition(".")[2]: full for full in reversed(every)}
    if field in anywhere:
        return f": did you mean {anywhere[field]}?"
    for fields in (siblings, anywhere):
        if close := difflib.get_close_matches(field, fields, n=1):
            return f": did you mean {fields[close[0]]}?"
    return f", expected one of {', '.join(siblings)}"


def check_types(params: cfg.ExperimentConfig, defaults: cfg.ExperimentConfig, where: str = ""):
    """Raises UserError unless values have their default's type, are finite and, if integers, of 64 bits."""
    prefix = f"{where}: " if where else ""
    expected, values = flatten(defaults.as_dict()), flatten(params.as_dict())
    for name in sorted(expected.keys() - values.keys()):
        sections = [name.rsplit(".", parts)[0] for parts in range(1, name.count(".") + 1)]
        if section := next((section for section in sections if section in values), None):
            raise UserError(f"{prefix}{section} is {values[section]!r}: expected fields, {name} among them")
        raise UserError(f"{prefix}{name} has fields: expected a value like {expected[name]!r}")
    for name, value in values.items():
        section, _, field = name.rpartition(".")
        default = expected.get(name)
        hint = type(value if default is None else default)
        annotation = typing.get_type_hints(type(operator.attrgetter(section)(params))).get(field)
        if isinstance(default, list) or typing.get_origin(annotation) is typing.Literal:
            hint = annotation
        if problem := schema.problem(name, value, hint):
            raise UserError(prefix + problem)

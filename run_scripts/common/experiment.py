"""Turns flags and files of settings into one checked experiment; shared by the training scripts."""

import copy
import dataclasses
import operator
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags, logging

from xlnet_tf import flags as flags_lib
from xlnet_tf import hub
from xlnet_tf.cli.command_line import closest
from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting, option

Options = TypeVar("Options")

RECIPES = pathlib.Path(__file__).parents[1] / "recipes"

# TensorFlow is imported where it is needed, so that --help answers at once.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run is, and its settings over the defaults; `given` has the settings given as flags."""

    model_dir: str = option("Folder of the run: checkpoints, settings, losses.")
    config_file: Sequence[str] = option(
        "Yaml file of settings, or a recipe's name (base, glue/sst-2), over the defaults; of several, the "
        "last one wins.",
        (),
        repeated=True,
    )
    params_override: str = option(
        "Settings over those of files and flags: trainer.train_steps=100,task.seed=1, or a yaml file.", ""
    )
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DryRunOptions:
    """Whether a training is only described or checked, and for which TPU."""

    show_config: bool = option("Print all settings and where each comes from, and train nothing.", False)

    dry_run: bool = option(
        "Build and check everything, print what would be trained, and train nothing.", False
    )
    topology: str | None = option(
        "With --dry_run: the TPU to check for, as v3-32; the step is compiled for one of its cores.",
        None,
        aliases=("for",),
    )
    price_per_hour: float | None = option(
        "With --topology: price of the whole slice for an hour.", None, least=0
    )


def define_flags(settings: Sequence[Setting], options: type = RunOptions):
    """Defines the flags of RunOptions, or of options derived from them, and of the settings."""
    flags_lib.define_flags(options)
    check_config_file()
    for setting in settings:
        setting.define()


def run_options(settings: Iterable[Setting], values: flags.FlagValues) -> RunOptions:
    """Returns the options that the flags of `define_flags` give; for mains."""
    given = {setting.flag: values[setting.flag].value for setting in settings}
    given = {flag: value for flag, value in given.items() if value is not None}
    return flags_lib.from_flags(RunOptions, values, given=given)


def split_checkpoint(options: Options) -> Options:
    """Splits model_dir=RUN/ckpt-STEP of a fine-tuned run into model_dir=RUN, checkpoint=ckpt-STEP."""
    folder, name = run_and_checkpoint(options.model_dir)
    if name and options.checkpoint not in ("", name):
        raise UserError(
            f"--model_dir={options.model_dir} and --checkpoint={options.checkpoint} name two checkpoints: "
            "leave out one of them"
        )
    return dataclasses.replace(options, model_dir=folder, checkpoint=name or options.checkpoint)


def run_and_checkpoint(path: str) -> tuple[str, str]:
    """Splits RUN/ckpt-STEP of a fine-tuned run into RUN and ckpt-STEP; other paths have checkpoint "".

    Only the run has the settings for its texts, and its thresholds.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    if not re.fullmatch(r"ckpt-[0-9]+(\.index)?", name):
        return path, ""
    from xlnet_tf.checkpoints.model_card import is_run

    return (folder or ".", name.removesuffix(".index")) if is_run(folder or ".") else (path, "")


def recipes() -> dict[str, pathlib.Path]:
    """Returns the files of settings that come with this package by their names, such as glue/sst-2."""
    files = sorted(RECIPES.rglob("*.yaml"))
    return {str(file.relative_to(RECIPES).with_suffix("")): file for file in files}


def settings_file(source: str, flag: str = "--config_file") -> str:
    """Returns the file of a recipe given by name; other sources stay unchanged. Messages name the flag."""
    known, name = recipes(), source.removesuffix(".yaml")
    if pathlib.Path(source).is_file() or not (name in known or re.fullmatch(r"[\w/-]+", name)):
        return source
    if name not in known:
        tip = f": did you mean {match}?" if (match := closest(name, known)) else "."
        raise UserError(
            f"{flag}={source}: there is no such file and no such recipe{tip} The recipes are "
            f"{', '.join(known)}"
        )
    return str(known[name])


def check_config_file():
    """Makes --config_file refuse unknown recipes and files as soon as the flags are parsed."""
    flags.register_validator("config_file", lambda sources: all(not s or settings_file(s) for s in sources))


def define_dry_run_flags():
    flags_lib.define_flags(DryRunOptions)
    for flag, needed in (("topology", "dry_run"), ("price_per_hour", "topology")):
        flags.register_multi_flags_validator(
            [flag, needed],
            lambda values, flag=flag, needed=needed: values[needed] or not values[flag],
            f"--{flag} has no effect without --{needed}: add it, or leave --{flag} out",
        )


def load(
    name: str, settings: Sequence[Setting], options: RunOptions, derived: Mapping[str, Mapping[str, Any]] = {}
):
    """Builds an experiment's settings: defaults, `derived`, --config_file, flags, then --params_override.

    `name` is the registered experiment; `derived` settings are named by their origin.
    """
    from official.core import exp_factory

    from xlnet_tf.training.config import override

    params = exp_factory.get_exp_config(name)
    for where, changes in derived.items():
        override(params, changes, where)
    for file in options.config_file:
        override(params, settings_file(file), "--config_file")
    recipe = copy.deepcopy(params)
    override_by_flags(params, settings, options.given)
    override(params, options.params_override, "--params_override")
    check(params, name, settings)
    has_warmup = any(setting.flag == "warmup_steps" for setting in settings)  # tpu_compile's lack it
    is_given = "warmup_steps" in options.given or "warmup_steps" in options.params_override
    if has_warmup and not is_given:
        _fit_warmup(params.trainer, recipe.trainer)
    # With their commits, so that the run's settings tell which weights it began with.
    params.task.init_checkpoint = hub.locate(params.task.init_checkpoint).source
    params.task.model.config_file = hub.locate(params.task.model.config_file, tokenizer_only=True).source
    return params


def check(params, name: str, settings: Sequence[Setting]):
    """Raises UserError unless each value has its type and is within its limits."""
    from official.core import exp_factory

    from xlnet_tf.training.config import check_types

    check_types(params, exp_factory.get_exp_config(name))
    for setting in settings:
        setting.check(operator.attrgetter(setting.field)(params))


def _fit_warmup(trainer, recipe):
    """Shortens a recipe's warm-up in proportion if a flag leaves fewer steps than it."""
    warmup, optimizer = recipe.optimizer_config.warmup_steps, trainer.optimizer_config
    if 0 < trainer.train_steps <= warmup == optimizer.warmup_steps:
        optimizer.warmup_steps = trainer.train_steps * warmup // max(recipe.train_steps, 10 * warmup)
        logging.warning(
            "warmup_steps is %d, not the recipe's %d, because train_steps is only %d; --warmup_steps sets it",
            optimizer.warmup_steps,
            warmup,
            trainer.train_steps,
        )


def override_by_flags(params, settings: Sequence[Setting], given: Mapping[str, Any]):
    from xlnet_tf.training.config import override

    for setting in settings:
        if setting.flag in given:
            setting.check(given[setting.flag])
            override(params, nested(setting.field, given[setting.flag]), f"--{setting.flag}")


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value

"""From flags and files of settings to one checked experiment; shared by the scripts that train."""

import copy
import operator
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags, logging

from xlnet_tf import hub
from xlnet_tf.cli.command_line import closest
from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting

RECIPES = pathlib.Path(__file__).parents[1] / "recipes"

# TensorFlow is imported where it is needed, so that --help answers at once.


def define_flags(settings: Sequence[Setting]):
    """Defines the flags of the settings, --model_dir, --config_file and --params_override."""
    flags.DEFINE_string("model_dir", None, "Folder of the run: checkpoints, settings, losses.", required=True)
    flags.DEFINE_multi_string(
        "config_file",
        [],
        "Yaml file of settings, or a recipe's name (base, glue/sst-2), over the defaults; of several, the "
        "last one wins.",
    )
    check_config_file()
    flags.DEFINE_string(
        "params_override",
        "",
        "Settings over those of files and flags: trainer.train_steps=100,task.seed=1, or a yaml file.",
    )
    for setting in settings:
        setting.define()


def split_checkpoint(values: flags.FlagValues):
    """Takes --model_dir=RUN/ckpt-STEP of a fine-tuned run as --model_dir=RUN --checkpoint=ckpt-STEP.

    Raises:
        UserError: --checkpoint is given as well.
    """
    folder, name = run_and_checkpoint(values.model_dir)
    if name and values.checkpoint not in ("", name):
        raise UserError(
            f"--model_dir={values.model_dir} and --checkpoint={values.checkpoint} name two checkpoints: "
            "leave out one of them"
        )
    values.model_dir, values.checkpoint = folder, name or values.checkpoint


def run_and_checkpoint(path: str) -> tuple[str, str]:
    """Splits RUN/ckpt-STEP of a fine-tuned run into RUN and ckpt-STEP; other paths have no checkpoint, "".

    Only the run has the settings of its texts, and the thresholds that it answers with.
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
    """Returns the file of a recipe that is given by name; other sources of settings as they are.

    Args:
        source: a recipe's name, or another source of settings.
        flag: where it was given, for the message.

    Raises:
        UserError: a name is that of no recipe and no file.
    """
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
    """Has --config_file refuse what is neither a recipe nor a file as soon as the flags are read."""
    flags.register_validator("config_file", lambda sources: all(not s or settings_file(s) for s in sources))


def define_dry_run_flags():
    """Defines --dry_run, and what it checks for: --topology, also as --for, and --price_per_hour."""
    flags.DEFINE_bool(
        "dry_run", False, "Build and check everything, print what would be trained, and train nothing."
    )
    flags.DEFINE_string(
        "topology",
        None,
        "With --dry_run: the TPU to check for, as v3-32; the step is compiled for one of its cores.",
    )
    flags.DEFINE_alias("for", "topology")
    flags.DEFINE_float(
        "price_per_hour", None, "With --topology: price of the whole slice for an hour.", lower_bound=0
    )
    for flag, needed in (("topology", "dry_run"), ("price_per_hour", "topology")):
        flags.register_multi_flags_validator(
            [flag, needed],
            lambda values, flag=flag, needed=needed: values[needed] or not values[flag],
            f"--{flag} has no effect without --{needed}: add it, or leave --{flag} out",
        )


def load(
    name: str,
    settings: Sequence[Setting],
    values: flags.FlagValues,
    given: Mapping[str, Mapping[str, Any]] = {},
):
    """Builds an experiment's settings: defaults, then --config_file, then flags, then --params_override.

    Args:
        name: the registered experiment.
        given: settings over the defaults, by where they come from.

    Returns:
        The ExperimentConfig, each value of its type and in its limits.

    Raises:
        UserError: a setting is unknown or has a wrong value, or a file cannot be read.
    """
    from official.core import exp_factory

    from xlnet_tf.training.config import override

    params = exp_factory.get_exp_config(name)
    for where, changes in given.items():
        override(params, changes, where)
    for file in values.config_file:
        override(params, settings_file(file), "--config_file")
    recipe = copy.deepcopy(params)
    override_by_flags(params, settings, values)
    override(params, values.params_override, "--params_override")
    _check(params, name, settings)
    given = "warmup_steps" not in values or values.warmup_steps is not None  # tpu_compile has no such flag
    if not given and "warmup_steps" not in values.params_override:
        _fit_warmup(params.trainer, recipe.trainer)
    # With their commits, so that the run's settings tell which weights it began with.
    params.task.init_checkpoint = hub.locate(params.task.init_checkpoint).source
    params.task.model.config_file = hub.locate(params.task.model.config_file, tokenizer_only=True).source
    return params


def is_text(params, settings: Sequence[Setting], axis: str) -> bool:
    """Returns whether a setting of an experiment, by its flag or its path, takes texts."""
    fields = {setting.flag: setting.field for setting in settings}
    try:
        return isinstance(operator.attrgetter(fields.get(axis, axis))(params), str)
    except AttributeError:
        return False  # there is no such setting, as `variant` says


def variant(params, name: str, settings: Sequence[Setting], point: Mapping[str, Any]):
    """Returns a copy of an experiment with some settings changed.

    Args:
        params, name, settings: of the experiment; see `load`.
        point: the settings by flag or by path, as learning_rate or task.model.dropout.

    Raises:
        UserError: there is no such setting, it is of the devices, which all variants share, or a value is of
            another type or out of its limits.
    """
    from xlnet_tf.training.config import override

    changed, fields = copy.deepcopy(params), {setting.flag: setting.field for setting in settings}
    if len({fields.get(axis, axis) for axis in point}) < len(point):
        raise UserError(f"--sweep names a setting twice, by its flag and its path: {', '.join(point)}")
    for axis, value in point.items():
        if axis not in fields and "." not in axis:
            match = closest(axis, fields)
            tip = f"did you mean {match}?" if match else f"expected one of {', '.join(fields)}, or a path"
            raise UserError(f"--sweep={axis}: there is no such setting: {tip}")
        path = fields.get(axis, axis)
        if path.startswith("runtime.") and path != "runtime.enable_xla":
            raise UserError(
                f"--sweep={axis}: all runs of a sweep share the devices and the type of numbers: start a "
                "sweep for each of these values"
            )
        override(changed, _nested(path, value), f"--sweep={axis}")
    _check(changed, name, settings)
    return changed


def _check(params, name: str, settings: Sequence[Setting]):
    """Raises UserError unless each value is of its type and in its limits."""
    from official.core import exp_factory

    from xlnet_tf.training.config import check_types

    check_types(params, exp_factory.get_exp_config(name))
    for setting in settings:
        setting.check(operator.attrgetter(setting.field)(params))


def _fit_warmup(trainer, recipe):
    """Shortens a recipe's warm-up where a flag leaves fewer steps than it, in proportion to all steps."""
    warmup, optimizer = recipe.optimizer_config.warmup_steps, trainer.optimizer_config
    if 0 < trainer.train_steps <= warmup == optimizer.warmup_steps:
        optimizer.warmup_steps = trainer.train_steps * warmup // max(recipe.train_steps, 10 * warmup)
        logging.warning(
            "warmup_steps is %d, not the recipe's %d, because train_steps is only %d; --warmup_steps sets it",
            optimizer.warmup_steps,
            warmup,
            trainer.train_steps,
        )


def without_effect(flag: str, other: str, value: Any) -> str:
    """Returns what to say, after its name, of a flag that another setting's value leaves without effect."""
    return f"has no effect, as {other} is {value}: give --{other}=0, too, or leave out {flag}"


def override_by_flags(params, settings: Sequence[Setting], values: flags.FlagValues):
    """Puts the settings whose flags are given over those of an experiment."""
    from xlnet_tf.training.config import override

    for setting in settings:
        if (value := values[setting.flag].value) is not None:
            setting.check(value)
            override(params, _nested(setting.field, value), f"--{setting.flag}")


def _nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value

"""From flags and files of settings to one checked experiment; shared by the scripts that train."""

import operator
from collections.abc import Sequence
from typing import Any

from absl import flags

from xlnet_tf.flags import Setting

# TensorFlow is imported where it is needed, so that --help answers at once.


def define_flags(settings: Sequence[Setting]):
    """Defines the flags of the settings, --model_dir, --config_file and --params_override."""
    flags.DEFINE_string("model_dir", None, "Folder of the run: checkpoints, settings, losses.", required=True)
    flags.DEFINE_multi_string(
        "config_file", [], "Yaml file of settings, over the defaults; of several files, the last one wins."
    )
    flags.DEFINE_string(
        "params_override",
        "",
        "Settings over those of files and flags: trainer.train_steps=100,task.seed=1, or a yaml file.",
    )
    for setting in settings:
        setting.define()


def define_dry_run_flags():
    """Defines --dry_run and --topology."""
    flags.DEFINE_bool(
        "dry_run", False, "Build and check everything, print what would be trained, and train nothing."
    )
    flags.DEFINE_string(
        "topology",
        None,
        "With --dry_run: the TPU to check for, as v3-32; the step is compiled for one of its cores.",
    )
    flags.register_multi_flags_validator(
        ["dry_run", "topology"],
        lambda values: values["dry_run"] or not values["topology"],
        "--topology is what a --dry_run checks for: add --dry_run, or leave --topology out",
    )


def load(name: str, settings: Sequence[Setting], values: flags.FlagValues):
    """Builds an experiment's settings: defaults, then --config_file, then flags, then --params_override.

    Args:
        name: the registered experiment.

    Returns:
        The ExperimentConfig, each value of its type and in its limits.

    Raises:
        UserError: a setting is unknown or has a wrong value, or a file cannot be read.
    """
    from official.core import exp_factory

    from xlnet_tf.training.config import check_types, override

    params = exp_factory.get_exp_config(name)
    for file in values.config_file:
        override(params, file, "--config_file")
    override_by_flags(params, settings, values)
    override(params, values.params_override, "--params_override")
    check_types(params, exp_factory.get_exp_config(name))
    for setting in settings:
        setting.check(operator.attrgetter(setting.field)(params))
    return params


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

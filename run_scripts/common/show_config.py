"""`--show_config` of pretrain and finetune: all settings as they will be, and where each comes from."""

from collections.abc import Mapping, Sequence
from typing import Any

from run_scripts.common import experiment
from run_scripts.common.experiment import RunOptions
from xlnet_tf import files
from xlnet_tf.flags import Setting

_DEFAULT, _FOLLOWS = "default", "follows from the model, the data and other settings"


def origins(
    name: str, settings: Sequence[Setting], options: RunOptions, derived: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[Any, str]]:
    """Returns path -> (value, origin) of an experiment's settings as given; for the arguments see `load`."""
    from official.core import exp_factory

    from xlnet_tf.training.config import flatten, override

    params = exp_factory.get_exp_config(name)
    found = {path: (value, _DEFAULT) for path, value in flatten(params.as_dict()).items()}

    def apply(origin: str, changes: str | Mapping[str, Any]) -> None:
        override(params, changes, origin)
        named = () if isinstance(changes, str) else flatten(changes)
        for path, value in flatten(params.as_dict()).items():
            if path in named or path not in found or found[path][0] != value:
                found[path] = value, origin

    for origin, changes in derived.items():
        apply(origin, changes)
    for file in options.config_file:
        apply(f"--config_file={file}", files.read_yaml(experiment.settings_file(file)))
    for setting in settings:
        if setting.flag in options.given:
            changes = experiment.nested(setting.field, options.given[setting.flag])
            apply(f"--{setting.flag}", changes)
    apply("--params_override", options.params_override)
    return found


def table(params, task, given: Mapping[str, tuple[Any, str]]) -> str:
    """Returns a table of all settings of a run of a task: path, value and origin."""
    from xlnet_tf.training.config import flatten

    params.task.model.override(task.xlnet_config.to_dict())
    rows = []
    for path, value in flatten(params.as_dict()).items():
        before, origin = given.get(path, (None, _FOLLOWS))
        rows.append((path, str(value), origin if before == value else _FOLLOWS))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = (f"{path:<{widths[0]}}  {value:<{min(widths[1], 40)}}  {origin}" for path, value, origin in rows)
    return "\n".join(line.rstrip() for line in lines)

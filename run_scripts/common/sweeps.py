"""The settings of a sweep's runs, and warnings about settings without effect."""

import copy
import functools
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import logging

from run_scripts.common import experiment
from xlnet_tf.cli.command_line import closest
from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting

# TensorFlow is imported where it is needed, so that --help answers at once.


def variants(
    params,
    name: str,
    settings: Sequence[Setting],
    sweeps: Sequence[str],
    samples: int,
    given: Collection[str],
):
    """Returns the points of a sweep, each with its settings; without a sweep, the settings alone.

    For params, name and settings see `experiment.load`; `samples` points are drawn at random (0: all).
    """
    from xlnet_tf.tasks import sweep

    if not (sweeps or samples):
        check_effect(params, given)
        return [({}, params)]
    if not params.task.validation_data.input_path:
        raise UserError("--sweep compares runs on dev examples: leave out --dev_split=")
    axes = [sweep.Axis.parse(text, functools.partial(is_text, params, settings)) for text in sweeps]
    points = sweep.points(axes, samples, params.task.seed)
    check_effect(params, given, [axis.name for axis in axes])
    return [(point, variant(params, name, settings, point)) for point in points]


def variant(params, name: str, settings: Sequence[Setting], point: Mapping[str, Any]):
    """Returns a copy of an experiment with some settings changed, by flag or by path (task.model.dropout)."""
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
        override(changed, experiment.nested(path, value), f"--sweep={axis}")
    experiment.check(changed, name, settings)
    return changed


def is_text(params, settings: Sequence[Setting], axis: str) -> bool:
    """Returns whether a setting of an experiment, by its flag or its path, takes texts."""
    fields = {setting.flag: setting.field for setting in settings}
    try:
        return isinstance(operator.attrgetter(fields.get(axis, axis))(params), str)
    except AttributeError:
        return False  # there is no such setting, as `variant` says


def check_effect(params, given: Collection[str], swept: Sequence[str] = ()):
    """Warns of given flags that other settings leave without effect; refuses to sweep such settings."""
    steps = params.trainer.train_steps, params.trainer.optimizer_config.warmup_steps
    varied = {name.rpartition(".")[2] for name in swept}
    for flag, other, value in zip(("epochs", "warmup_fraction"), ("train_steps", "warmup_steps"), steps):
        if not value or other in varied:
            continue
        why = without_effect(flag, other, value)
        if flag in varied:
            raise UserError(f"--sweep={flag} {why}")
        if flag in given:
            logging.warning("--%s %s", flag, why)


def without_effect(flag: str, other: str, value: Any) -> str:
    """Returns the end of a warning about a flag that another setting's value leaves without effect."""
    return f"has no effect, as {other} is {value}: give --{other}=0, too, or leave out {flag}"

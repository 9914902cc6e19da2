"""What --help of the larger commands shows first, and which values will be used."""

import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from run_scripts.common import experiment
from xlnet_tf import files
from xlnet_tf.cli.help_screen import HelpScreen
from xlnet_tf.flags import Setting
from xlnet_tf.tasks import suggestions

_FINETUNE = {
    "data": ("train", "dev", "test", "task", "text_column", "label_column", "data"),
    "model": ("init_checkpoint", "seq_len"),
    "training": ("config_file", "learning_rate", "epochs", "batch_size", "num_seeds", "patience"),
    "output": ("model_dir", "dry_run", "show_config"),
}
_PRETRAIN = {
    "data": ("train_data", "dev_data"),
    "model": ("preset", "model_config", "init_checkpoint"),
    "training": (
        *("config_file", "train_steps", "batch_size", "learning_rate", "warmup_steps", "strategy", "dtype"),
    ),
    "output": ("model_dir", "eval_interval", "checkpoint_interval", "dry_run", "show_config"),
}
# The experiment's own, which the help shows without loading TensorFlow; a test compares the two.
PRETRAIN_DEFAULTS = {
    "preset": "tiny",
    "train_steps": "10000",
    "batch_size": "16",
    "learning_rate": "0.0001",
    "warmup_steps": "0",
    "strategy": "one_device",
    "dtype": "float32",
    "eval_interval": "1000",
    "checkpoint_interval": "1000",
}


def finetune(settings: Sequence[Setting]) -> HelpScreen:
    return HelpScreen(_FINETUNE, functools.partial(_finetune_values, settings))


def pretrain(settings: Sequence[Setting]) -> HelpScreen:
    return HelpScreen(_PRETRAIN, lambda values: PRETRAIN_DEFAULTS | _recipe_values(settings, values))


def _finetune_values(settings: Sequence[Setting], values: flags.FlagValues) -> dict[str, str]:
    found = {
        "learning_rate": f"{suggestions.LEARNING_RATE:g}",
        "epochs": f"{suggestions.EPOCHS:g}",
        "batch_size": f"{suggestions.BATCH}",
    }
    if values["train"].value:
        width = _width(values["init_checkpoint"].value)
        found |= suggestions.described(width)
    return found | _recipe_values(settings, values)


def _width(model: str | None) -> int | None:
    """Returns the width of a model in a folder of its own files; None if it takes more to know."""
    path = pathlib.Path(model or "") / "xlnet_config.json"
    return json.loads(path.read_text()).get("d_model") if model and path.is_file() else None


def _recipe_values(settings: Sequence[Setting], values: flags.FlagValues) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in values["config_file"].value or ():
        recipe = files.read_yaml(experiment.settings_file(name))
        for setting in settings:
            value: Any = recipe
            for part in setting.field.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                found[setting.flag] = f"{value} ({name})"
    return found

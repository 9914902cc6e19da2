"""What the files beside weights tell of a model: how it reads its texts, and what its outputs mean.

A run has params.yaml and manifest.json, Hugging Face's models config.json and tokenizer_config.json; the
original's have none. They go along when the weights are converted, so that it makes no difference to the
model which format it is in.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from xlnet_tf.checkpoints import hugging_face_config
from xlnet_tf.checkpoints.checkpoint import MANIFEST_FILE, Checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.files import read_json, read_yaml
from xlnet_tf.text import cleaning
from xlnet_tf.text.cleaning import CleaningConfig

PARAMS_FILE = "params.yaml"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
METRICS_FILE = "metrics.json"  # of a run's best evaluation: thresholds of answers and alerts are among them
BEST = "best"  # folder of a run that has its best weights
COMPANIONS = (
    "spiece.model",
    MANIFEST_FILE,
    PARAMS_FILE,
    hugging_face_config.CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    METRICS_FILE,
    f"{BEST}/{METRICS_FILE}",
)

# Settings that the weights do not tell, by the names of the models' options, and their types.
_SETTINGS = {
    "attention_type": str,
    "same_length": bool,
    "clamp_len": int,
    "uniform_when_blind": bool,
    "summary": str,
    "pool_padding": bool,
    "segment_len": int,
    "memory_len": int,
    "start_top": int,
    "end_top": int,
}
_TRAINING_SETTINGS = {
    "dropout": float,
    "attention_dropout": float,
    "initializer_range": float,
}
_TYPES = _SETTINGS | _TRAINING_SETTINGS


def read_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns how a model reads and answers, by the names of the models' options; empty if no file tells.

    Raises:
        UserError: a file does not say it as it should.
    """
    if tf.io.gfile.exists(checkpoint.beside(PARAMS_FILE)):
        settings = _of_run(checkpoint, _SETTINGS)
        # A model that reads at once has no use for the memory that it was trained with.
        memory_len = settings.pop("memory_len", None)
        if segment_len := settings.get("segment_len"):
            settings["memory_len"] = memory_len or segment_len
        return settings
    path = checkpoint.beside(hugging_face_config.CONFIG_FILE)
    return _checked(hugging_face_config.read_settings(read_fields(checkpoint)), path)


def read_training_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns what a run's model was trained with: dropout and the like; empty if it is of no run.

    Raises:
        UserError: a file does not say it as it should.
    """
    is_run = tf.io.gfile.exists(checkpoint.beside(PARAMS_FILE))
    return _of_run(checkpoint, _TRAINING_SETTINGS) if is_run else {}


def read_cleaning(checkpoint: Checkpoint) -> CleaningConfig | None:
    """Returns how texts are cleaned, None if no file tells.

    Raises:
        UserError: a file does not say it as it should.
    """
    theirs = tf.io.gfile.exists(checkpoint.beside(TOKENIZER_CONFIG_FILE))
    if not theirs and "cleaning" not in checkpoint.manifest():
        return None
    return cleaning.read_cleaning(checkpoint.beside(""))


def read_labels(checkpoint: Checkpoint, task: str) -> tuple[str, ...] | None:
    """Returns the labels of a task's head, None if no file tells them.

    Args:
        checkpoint: the weights.
        task: "classification" or "tagging".

    Raises:
        UserError: a file does not say it as it should.
    """
    manifest = checkpoint.manifest()
    if not manifest:
        path = checkpoint.beside(hugging_face_config.CONFIG_FILE)
        return hugging_face_config.read_labels(read_fields(checkpoint), path)
    if manifest.get("task") != task:
        return None
    labels = manifest["settings"].get("labels")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        path = checkpoint.beside(MANIFEST_FILE)
        raise UserError(f"{path}: settings.labels is {labels!r}; expected strings.")
    return tuple(labels)


def is_multi_label(checkpoint: Checkpoint) -> bool:
    """Tells whether a text has any number of the classes of the classifier, each with its own probability.

    Raises:
        UserError: a file does not say it as it should.
    """
    if manifest := checkpoint.manifest():
        return manifest["settings"].get("kind") == "multi_label"
    return read_fields(checkpoint).get("problem_type") == hugging_face_config.MULTI_LABEL


def check_summary(checkpoint: Checkpoint, projection: bool) -> None:
    """Raises UserError if a file tells of a pooled vector that cannot be built here.

    Args:
        checkpoint: the weights.
        projection: whether they have one for it.
    """
    path = checkpoint.beside(hugging_face_config.CONFIG_FILE)
    hugging_face_config.check_summary(read_fields(checkpoint), projection, path)


def read_fields(checkpoint: Checkpoint, file: str = hugging_face_config.CONFIG_FILE) -> dict[str, Any]:
    """Returns the fields of a json file of Hugging Face's, none if there is no such file."""
    path = checkpoint.beside(file)
    return read_json(path) if tf.io.gfile.exists(path) else {}


def _of_run(checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, Any]:
    """Returns settings of the model of a run."""
    path = checkpoint.beside(PARAMS_FILE)
    task = read_yaml(path).get("task")
    model = task.get("model") if isinstance(task, dict) else None
    if not isinstance(model, dict):
        raise UserError(f"{path} has no task.model; expected the settings of a run.")
    return _checked({name: model[name] for name in names if name in model}, path)


def _checked(settings: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the settings that a file tells; one of a wrong type is an error."""
    told = {name: value for name, value in settings.items() if value is not None}
    for name, value in told.items():
        is_whole_float = _TYPES[name] is float and type(value) is int
        if type(value) is not _TYPES[name] and not is_whole_float:
            raise UserError(f"{path}: {name} is {value!r}; expected a {_TYPES[name].__name__}.")
    return told

"""What the files beside weights tell of a model: how it reads its texts, and what its outputs mean.

A run has params.yaml and manifest.json, Hugging Face's models config.json and tokenizer_config.json; the
original's have none. They go along when the weights are converted, so that it makes no difference to the
model which format it is in.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xlnet_tf.checkpoints import hugging_face_config
from xlnet_tf.checkpoints.checkpoint import MANIFEST_FILE, Checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.files import read_json, read_yaml

PARAMS_FILE = "params.yaml"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
COMPANIONS = (
    "spiece.model",
    MANIFEST_FILE,
    PARAMS_FILE,
    hugging_face_config.CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
)

# Settings that the weights do not tell, by the names of the models' options, and their types.
_TYPES = {
    "attention_type": str,
    "same_length": bool,
    "clamp_len": int,
    "uniform_when_blind": bool,
    "summary": str,
    "pool_padding": bool,
    "segment_len": int,
    "memory_len": int,
}


def read_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns how a model reads its texts, by the names of the models' options; empty if no file tells.

    Raises:
        UserError: a file does not say it as it should.
    """
    if tf.io.gfile.exists(path := checkpoint.beside(PARAMS_FILE)):
        task = read_yaml(path).get("task")
        model = task.get("model") if isinstance(task, dict) else None
        if not isinstance(model, dict):
            raise UserError(f"{path} has no task.model; expected the settings of a run.")
        settings = {name: model[name] for name in _TYPES if name in model}
        # A model that reads at once has no use for the memory that it was trained with.
        memory_len = settings.pop("memory_len", None)
        if segment_len := settings.get("segment_len"):
            settings["memory_len"] = memory_len or segment_len
        return _checked(settings, path)
    path = checkpoint.beside(hugging_face_config.CONFIG_FILE)
    return _checked(hugging_face_config.read_settings(read_fields(checkpoint)), path)


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


def read_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the fields of Hugging Face's config.json, none if there is no such file."""
    path = checkpoint.beside(hugging_face_config.CONFIG_FILE)
    return read_json(path) if tf.io.gfile.exists(path) else {}


def _checked(settings: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the settings that a file tells; one of a wrong type is an error."""
    told = {name: value for name, value in settings.items() if value is not None}
    for name, value in told.items():
        if type(value) is not _TYPES[name]:
            raise UserError(f"{path}: {name} is {value!r}; expected a {_TYPES[name].__name__}.")
    return told

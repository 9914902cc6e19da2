"""What the files beside weights tell of a model: how it reads its texts, and what its outputs mean.

A run has params.yaml and manifest.json, a model of `save_model` model.json, Hugging Face's models config.json
and tokenizer_config.json; the original's have none. They go along when the weights are converted, so that it
makes no difference to the model which format it is in.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from xlnet_tf import files
from xlnet_tf.checkpoints import hugging_face_config
from xlnet_tf.checkpoints.checkpoint import MANIFEST_FILE, Checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.text import cleaning
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import MODEL_FILE as TOKENIZER_FILE
from xlnet_tf.text.tokenizer import XLNetTokenizer

CARD_FILE = cleaning.CARD_FILE
PARAMS_FILE = "params.yaml"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
METRICS_FILE = "metrics.json"  # of a run's best evaluation: thresholds of answers and alerts are among them
BEST = "best"  # folder of a run that has its best weights
COMPANIONS = (
    TOKENIZER_FILE,
    CARD_FILE,
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


def describe(model: tf_keras.Model, tokenizer: XLNetTokenizer | None = None) -> dict[str, Any]:
    """Returns the fields of model.json: what the weights of a model do not tell.

    Args:
        model: an encoder, or a model with one in its attribute `encoder`.
        tokenizer: that of the model; None if it is not known.
    """
    values = getattr(model, "encoder", model).get_config()
    with contextlib.suppress(NotImplementedError):  # a model of the user's own
        values |= model.get_config()
    fields = {"settings": {name: values[name] for name in _TYPES if values.get(name) is not None}}
    labels = list(values.get("labels") or ())
    if labels != [*map(str, range(len(labels)))]:  # numbers stand for labels that nobody named
        fields["labels"] = labels
    if values.get("multi_label"):
        fields["multi_label"] = True
    if tokenizer:
        fields["cleaning"] = tokenizer.cleaning.to_dict()
    return fields


def read_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns how a model reads and answers, by the names of the models' options; empty if no file tells.

    Raises:
        UserError: a file does not say it as it should.
    """
    if _is_ours(checkpoint):
        settings = _own_settings(checkpoint, _SETTINGS)
        # A model that reads at once has no use for the memory that it was trained with.
        memory_len = settings.pop("memory_len", None)
        if segment_len := settings.get("segment_len"):
            settings["memory_len"] = memory_len or segment_len
        return settings
    path = checkpoint.beside(hugging_face_config.CONFIG_FILE)
    return _checked(hugging_face_config.read_settings(read_fields(checkpoint)), path)


def read_training_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns what a model of ours was trained with: dropout and the like; empty for others.

    Raises:
        UserError: a file does not say it as it should.
    """
    return _own_settings(checkpoint, _TRAINING_SETTINGS) if _is_ours(checkpoint) else {}


def read_cleaning(checkpoint: Checkpoint) -> CleaningConfig | None:
    """Returns how texts are cleaned, None if no file tells.

    Raises:
        UserError: a file does not say it as it should.
    """
    theirs = tf.io.gfile.exists(checkpoint.beside(TOKENIZER_CONFIG_FILE))
    if not theirs and "cleaning" not in read_fields(checkpoint, CARD_FILE) | checkpoint.manifest():
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
    if manifest := checkpoint.manifest():
        if manifest.get("task") != task:
            return None
        path, labels = checkpoint.beside(MANIFEST_FILE), manifest["settings"].get("labels")
    elif fields := read_fields(checkpoint, CARD_FILE):
        path, labels = checkpoint.beside(CARD_FILE), fields.get("labels")
        if labels is None:
            return None
    else:
        path = checkpoint.beside(hugging_face_config.CONFIG_FILE)
        return hugging_face_config.read_labels(read_fields(checkpoint), path)
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UserError(f"{path}: labels is {labels!r}; expected strings.")
    return tuple(labels)


def is_multi_label(checkpoint: Checkpoint) -> bool:
    """Tells whether a text has any number of the classes of the classifier, each with its own probability.

    Raises:
        UserError: a file does not say it as it should.
    """
    if manifest := checkpoint.manifest():
        return manifest["settings"].get("kind") == "multi_label"
    if fields := read_fields(checkpoint, CARD_FILE):
        return fields.get("multi_label") is True
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
    """Returns the fields of a json file, none if there is no such file."""
    path = checkpoint.beside(file)
    return files.read_json(path) if tf.io.gfile.exists(path) else {}


def _is_ours(checkpoint: Checkpoint) -> bool:
    """Tells whether save_model or a run has written how the model reads."""
    return any(tf.io.gfile.exists(checkpoint.beside(file)) for file in (CARD_FILE, PARAMS_FILE))


def _own_settings(checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, Any]:
    """Returns settings of a model that save_model or a run has written."""
    if tf.io.gfile.exists(path := checkpoint.beside(PARAMS_FILE)):
        task = files.read_yaml(path).get("task")
        model = task.get("model") if isinstance(task, dict) else None
        if not isinstance(model, dict):
            raise UserError(f"{path} has no task.model; expected the settings of a run.")
    else:
        path = checkpoint.beside(CARD_FILE)
        model = files.read_json(path).get("settings")
        if not isinstance(model, dict):
            raise UserError(f"{path}: settings is {model!r}; expected an object with fields.")
    return _checked({name: model[name] for name in names if name in model}, path)


def _checked(settings: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the settings that a file tells; one of a wrong type is an error."""
    told = {name: value for name, value in settings.items() if value is not None}
    for name, value in told.items():
        is_whole_float = _TYPES[name] is float and type(value) is int
        if type(value) is not _TYPES[name] and not is_whole_float:
            raise UserError(f"{path}: {name} is {value!r}; expected a {_TYPES[name].__name__}.")
    return told

"""What a checkpoint, and the files beside it, tell about a model: settings, head and labels."""

import inspect
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras
from absl import logging

from xlnet_tf.checkpoints import load_into, open_checkpoint
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE, MANIFEST_FILE
from xlnet_tf.errors import UserError
from xlnet_tf.files import read_json, read_yaml

# How a model reads its texts, which its weights do not tell, and the types of these settings.
_SETTINGS = {"attention_type": str, "same_length": bool, "clamp_len": int, "uniform_when_blind": bool}
_HEAD_SETTINGS = {"summary": str, "pool_padding": bool, "segment_len": int}
_TYPES = {**_SETTINGS, **_HEAD_SETTINGS, "memory_len": int}
# The same by their names in Hugging Face's config.json.
_HUGGING_FACE = {
    "attn_type": "attention_type",
    "same_length": "same_length",
    "clamp_len": "clamp_len",
    "summary_type": "summary",
}
_UNNAMED = re.compile(r"LABEL_\d+")  # labels that nobody named, in Hugging Face's config.json
_PROJECTION = "summary/projection/kernel"


class Head(NamedTuple):
    """The head that a model is to have.

    Attributes:
        part: its part of the model, as checkpoints/names.py has it.
        labels: of its classes, in order.
        new: whether the checkpoint lacks it.
    """

    part: str
    labels: tuple[str, ...]
    new: bool


class Pretrained:
    """An open checkpoint with what lies beside it.

    Args:
        path: as `checkpoints.open_checkpoint` takes it.

    Attributes:
        checkpoint: the weights.
        config: their architecture.
        settings: how the model reads its texts, by the names of the models' options; empty if no file tells,
            as for the original's checkpoints.

    Raises:
        UserError: there is no checkpoint, or its architecture is unknown.
        FileNotFoundError: there is nothing at the path.
    """

    def __init__(self, path: str | os.PathLike):
        self.checkpoint = open_checkpoint(path)
        self.config = self.checkpoint.config
        if self.config is None:
            raise UserError(
                f"neither {CONFIG_FILE} nor config.json, which tell the architecture, lies beside "
                f"{self.checkpoint.path}: copy it there."
            )
        self.settings = self._read_settings()

    def options(self, given: Mapping[str, Any], *models: type[tf_keras.Model]) -> list[dict[str, Any]]:
        """Deals options out to the parts of a model; where none is given, the checkpoint's setting counts.

        Args:
            given: the user's options.
            models: classes whose keyword-only arguments are their options.

        Returns:
            The options of each class.

        Raises:
            UserError: no class has such an option.
        """
        accepted = [_option_names(model) for model in models]
        if unknown := sorted(set(given).difference(*accepted)):
            known = ", ".join(sorted(set().union(*accepted)))
            raise UserError(f"unknown option {', '.join(unknown)}; expected some of {known}.")
        options = {**self.settings, **given}
        return [{name: options[name] for name in names if name in options} for names in accepted]

    def find_head(self, kind: str, labels: Iterable[str] | None, task: str | None = None) -> Head:
        """Finds out which head a model is to have, and checks its labels.

        Args:
            kind: "tagging", or "classification", of which there may be several.
            labels: the user's; None: the checkpoint's.
            task: which head of those for classification; None: the only one, or a new one.

        Raises:
            UserError: labels are missing or not those of the head, or several heads could be meant.
        """
        path = self.checkpoint.path
        sizes = self._head_sizes(kind)
        if task:
            part = f"{kind}_{task}"
        elif len(sizes) > 1:
            tasks = ", ".join(name.partition("_")[2] for name in sizes)
            raise UserError(f"{path} has several heads for {kind}: give head_name, one of {tasks}.")
        else:
            part = next(iter(sizes), "tagging" if kind == "tagging" else f"{kind}_task")

        given = None if labels is None else _check_labels(labels)
        if part not in sizes:
            if not given:
                raise UserError(f"{path} has no head {part}: give labels=[...], those of a new one.")
            logging.info("%s has no head %s: a new one begins with random weights", path, part)
            return Head(part, given, new=True)
        size = sizes[part]
        theirs = self._labels(kind)
        if given and (len(given) != size or theirs not in (None, given)):
            found = f"the labels {', '.join(theirs)}" if theirs else f"{size} classes"
            raise UserError(
                f"the head {part} of {path} has {found}; the given labels are {', '.join(given)}. Leave "
                "them out to take the head's, or begin a new head: from pretrained weights, or, for "
                "classification, under another head_name."
            )
        return Head(part, given or theirs or tuple(map(str, range(size))), new=False)

    def head_options(self, head: Head) -> dict[str, bool]:
        """Returns which layers below the logits the checkpoint has for a head."""
        return {} if head.new else {"projection": _PROJECTION in self.checkpoint.arrays}

    def load_into(self, model: tf_keras.Model, head: Head | None = None) -> None:
        """Builds a model and loads the checkpoint into it, all of it but a new head."""
        model.build()
        load_into(model, self.checkpoint, new=(head.part, "summary", "pooling") if head and head.new else ())

    def _read_settings(self) -> dict[str, Any]:
        if tf.io.gfile.exists(run := self.checkpoint.beside("params.yaml")):
            task = read_yaml(run).get("task")
            found = task.get("model") if isinstance(task, dict) else None
            if not isinstance(found, dict):
                raise UserError(f"{run} has no task.model; expected the settings of a run.")
            settings = {name: found[name] for name in (*_SETTINGS, *_HEAD_SETTINGS) if name in found}
            if segment_len := found.get("segment_len"):
                settings["memory_len"] = found.get("memory_len") or segment_len
            return _checked(settings, run)
        theirs = self._hugging_face()
        found = {ours: theirs[name] for name, ours in _HUGGING_FACE.items() if name in theirs}
        found = _checked(found, self.checkpoint.beside("config.json"))
        # Its models pool padding, too.
        return found | ({"pool_padding": True} if found.get("summary") in ("first", "mean") else {})

    def _head_sizes(self, kind: str) -> dict[str, int]:
        """Returns the heads of a kind with their numbers of classes."""
        pattern = re.compile(rf"({kind}(_[^/]+)?)/logits/bias")
        matches = {pattern.fullmatch(name): shape for name, shape in self.checkpoint.arrays.shapes.items()}
        return {match[1]: shape[0] for match, shape in matches.items() if match}

    def _labels(self, kind: str) -> tuple[str, ...] | None:
        """Returns the labels of the head, None if no file tells them."""
        if manifest := self.checkpoint.manifest():
            if manifest.get("task") != kind:
                return None
            labels = manifest["settings"].get("labels")
            if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
                path = self.checkpoint.beside(MANIFEST_FILE)
                raise UserError(f"{path}: settings.labels is {labels!r}; expected strings.")
            return tuple(labels)
        by_id = self._hugging_face().get("id2label") or {}
        try:
            labels = tuple(str(by_id[index]) for index in sorted(by_id, key=int))
        except (TypeError, ValueError, AttributeError):
            path = self.checkpoint.beside("config.json")
            raise UserError(f"{path}: id2label is {by_id!r}; expected numbers with their labels.") from None
        return None if all(map(_UNNAMED.fullmatch, labels)) else labels

    def _hugging_face(self) -> dict[str, Any]:
        """Returns the fields of Hugging Face's config.json, none if the checkpoint is not of its format."""
        path = self.checkpoint.beside("config.json")
        if self.checkpoint.format != "hugging_face" or not tf.io.gfile.exists(path):
            return {}
        return read_json(path)


def _option_names(model: type[tf_keras.Model]) -> set[str]:
    """Returns the keyword-only arguments of a class and of those it extends."""
    parameters = [p for base in model.__mro__ for p in inspect.signature(base.__init__).parameters.values()]
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"name", "labels"}


def _checked(settings: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the settings that a file tells; one of a wrong type is an error."""
    told = {name: value for name, value in settings.items() if value is not None}
    for name, value in told.items():
        if type(value) is not _TYPES[name]:
            raise UserError(f"{path}: {name} is {value!r}; expected a {_TYPES[name].__name__}.")
    return told


def _check_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns the labels as strings, each of them once."""
    if isinstance(labels, str):
        raise UserError(f"labels is {labels!r}; expected a list, such as ['negative', 'positive'].")
    labels = tuple(map(str, labels))
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise UserError(f"labels are {', '.join(labels) or 'none'}; expected at least 2, each of them once.")
    return labels

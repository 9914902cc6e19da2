"""Reads a model's settings, head and labels from a checkpoint and the files in its folder."""

import inspect
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras
from absl import logging

from xlnet_tf import hints, task_registry
from xlnet_tf.checkpoints import building_from, hugging_face_config, load_into, names, open_checkpoint
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.text.cleaning import DEFAULT_CLEANING
from xlnet_tf.text.inputs import check_text
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE


class Head(NamedTuple):
    """The head that a model is to have: its first scope, whether the checkpoint lacks it, and its labels."""

    scope: str
    new: bool
    labels: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """What it was trained for, if its name says."""
        return self.scope.partition("_")[2]


class Pretrained:
    """An open checkpoint with the files next to it."""

    def __init__(self, path: str | os.PathLike):
        self.checkpoint = open_checkpoint(path)
        if self.checkpoint.config is None:
            raise UserError(
                f"neither {CONFIG_FILE} nor config.json, which have the architecture, lies next to "
                f"{self.checkpoint.path}: copy it there."
            )
        self.config = self.checkpoint.config
        self.card = self.checkpoint.card
        self._tokenizer: XLNetTokenizer | None = None

    @classmethod
    def open(cls, path: "Source") -> "Pretrained":
        """Opens a checkpoint unless it is open already, so that each of its files is opened once."""
        return path if isinstance(path, Pretrained) else cls(path)

    def load_tokenizer(self) -> XLNetTokenizer:
        if self._tokenizer is None:
            cleaning = self.card.cleaning or DEFAULT_CLEANING
            self._tokenizer = XLNetTokenizer.from_pretrained(self.checkpoint.path_of(""), cleaning)
        return self._tokenizer

    def options(self, given: Mapping[str, Any], *models: type[tf_keras.Model]) -> list[dict[str, Any]]:
        """Deals options out to classes, by their keyword-only arguments; the checkpoint's are defaults."""
        accepted = [keyword_options(model) - {"name", "labels"} for model in models]
        known = set().union(*accepted)
        hints.refuse(set(given) - known, known)
        options = {**self.card.reading, **given}
        return [{name: options[name] for name in names if name in options} for names in accepted]

    def find_head(self, head_kind: str, task: str | None = None) -> Head:
        """Finds the head that a model is to have.

        Args:
            head_kind: as in TaskEntry.head_kind, such as "classification"; a checkpoint may have several such
                heads.
            task: which of several; None: the only one, or a new one. One that is not there is new.
        """
        scopes = set(map(names.head_scope, self.checkpoint.arrays))
        template = next(
            (t.head for t in task_registry.tasks().values() if t.head_kind == head_kind), head_kind
        )
        pattern = template.format(task=".+")
        matching = sorted(scope for scope in scopes if re.fullmatch(pattern, scope))
        if task:
            scope = template.format(task=task)
        elif len(matching) > 1:
            tasks = ", ".join(name.partition("_")[2] for name in matching)
            raise UserError(
                f"{self.checkpoint.path} has several heads for {head_kind}: give head_name, one of {tasks}."
            )
        else:
            scope = next(iter(matching), template.format(task="task"))
        return Head(scope, scope not in matching)

    def other_heads(self) -> str:
        """Returns a part of a message about the existing heads, if another one is requested."""
        scopes = sorted(set(map(names.head_scope, self.checkpoint.arrays)))
        tasks = {scope: task for scope in scopes if (task := task_registry.entry_for_scope(scope))}
        loaded = (
            f"{scope}, which {task.model.rpartition(':')[2]}.from_pretrained loads"
            for scope, task in tasks.items()
        )
        return f", but {', '.join(loaded)}" if tasks else ""

    def find_labeled_head(
        self, head_kind: str, labels: Iterable[str] | None, task: str | None = None
    ) -> Head:
        """Finds out which "tagging" or "classification" head a model is to have, and checks its labels."""
        path = self.checkpoint.path
        head = self.find_head(head_kind, task)
        chosen = None if labels is None else _check_labels(labels)
        if head.new:
            if not chosen:
                raise UserError(
                    f"{path} has no head {head.scope}{self.other_heads()}: give labels=[...], those of a "
                    "new one."
                )
            return head._replace(labels=chosen)
        bias = f"{head.scope}/logits/bias"
        shape = self.checkpoint.arrays.shapes.get(bias)
        if not shape or len(shape) > 1:
            raise UserError(
                f"{path}: {bias} has the shape {shape}; expected a number for each class. The checkpoint is "
                "damaged, or of another model: fetch or write it again."
            )
        [size] = shape
        stored = self.card.labels_of(head_kind)
        if stored and len(stored) != size:
            raise UserError(
                f"the head {head.scope} of {path} has {size} classes, and the files next to it name "
                f"{len(stored)}: {', '.join(stored)}. Correct id2label in config.json, or labels in "
                "model.json."
            )
        if chosen and (len(chosen) != size or stored not in (None, chosen)):
            stated = f"{size} classes" if len(chosen) != size else f"the labels {', '.join(stored or ())}"
            raise UserError(
                f"the head {head.scope} of {path} has {stated}; the given labels are {', '.join(chosen)}. "
                "Leave them out to take the head's, or begin a new head: from pretrained weights, or, for "
                "classification, under another head_name."
            )
        return head._replace(labels=chosen or stored or tuple(map(str, range(size))))

    def pooling_options(self, head: Head) -> dict[str, bool]:
        """Returns the pooling of a head's input, as options of the model."""
        if head.new:
            return {}
        projection = names.PROJECTION in self.checkpoint.arrays
        file = hugging_face_config.CONFIG_FILE
        hugging_face_config.check_summary(self.card.external[file], projection, self.checkpoint.path_of(file))
        return {"projection": projection}

    def load_into(self, model: tf_keras.Model, head: Head | None = None) -> None:
        """Builds a model and loads the checkpoint into it, all of it but a new head."""
        new = head if head and head.new else None
        with building_from(self.checkpoint) as loaded:
            model.build()
        model.card = ModelCard(origin=self.card.origin, cleaning=self.card.cleaning) if new else self.card
        model.folder = None if new else os.path.dirname(self.checkpoint.path)
        if tf.io.gfile.exists(self.checkpoint.path_of(TOKENIZER_FILE)):
            model.tokenizer = self.load_tokenizer()
        scopes = (new.scope, "summary", "pooling") if new else ()
        coverage = load_into(model, self.checkpoint, new=scopes, loaded=loaded)
        if names.QUERY_START in coverage.new:
            logging.info(
                "%s has no %s, as the original fine-tunes: only the query stream reads it, which starts with "
                "random weights",
                self.checkpoint.path,
                names.QUERY_START,
            )
        if new:
            logging.info(
                "%s has no head %s%s: a new one begins with random weights",
                self.checkpoint.path,
                new.scope,
                self.other_heads(),
            )
            own = [v for v in model.variables if names.head_scope(names.canonical(v.name)) == new.scope]
            kernel = max(own, key=lambda variable: len(variable.shape))
            vars(model)["_new_head"] = kernel, kernel.numpy()  # not among what tf_keras tracks


Source = str | os.PathLike | Pretrained  # what from_pretrained takes


def keyword_options(model_class: type) -> set[str]:
    """Returns the keyword-only arguments of a class and of those it extends."""
    constructors = [base.__init__ for base in model_class.__mro__]  # type: ignore[misc]
    parameters = [p for each in constructors for p in inspect.signature(each).parameters.values()]
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}


def label_list(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns labels as strings; raises UserError if they are not in an order or cannot be written."""
    if isinstance(labels, (str, Mapping, set, frozenset)) or not isinstance(labels, Iterable):
        raise UserError(f"labels is {short_repr(labels)}; expected a list, such as ['negative', 'positive'].")
    strings = tuple(map(str, labels))
    for index, label in enumerate(strings):
        check_text(label, f"labels[{index}]")
    return strings


def _check_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns the labels as strings, each of them once."""
    labels = label_list(labels)
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise UserError(f"labels are {', '.join(labels) or 'none'}; expected at least 2, each of them once.")
    return labels

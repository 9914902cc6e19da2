"""Checks that examples, tasks and checkpoints fit together; errors name both sides."""

import typing
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from xlnet_tf import task_registry
from xlnet_tf.checkpoints import Checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import MAX_SEQ_LEN, ExampleSet
from xlnet_tf.tasks.model_config import EncoderModelConfig
from xlnet_tf.text.cleaning import MANIFEST_FILE
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

_EXPECTED = {
    bool: "true or false",
    int: f"a whole number from 1 to {MAX_SEQ_LEN}",  # all of them are lengths, or grades
    str: "a string",
    list[str]: "strings",
    dict[str, str]: "strings by name",
}


def check_settings(examples: ExampleSet, types: Mapping[str, Any]):
    """Raises UserError unless a set's settings have what its task reads, of these types by name."""
    for name, type_ in types.items():
        if not _has_type(examples.settings.get(name), type_):
            raise wrong_setting(examples, name, _EXPECTED[type_])


def check_labels(examples: ExampleSet, fewest: int):
    """Raises UserError unless a set has this many labels, and each of them once."""
    labels = examples.settings["labels"]
    if len(labels) < fewest or len(set(labels)) < len(labels):
        raise wrong_setting(examples, "labels", f"{fewest} or more, each of them once")


def wrong_setting(examples: ExampleSet, name: str, expected: str) -> UserError:
    """Returns the error for a setting of a set that its task cannot take."""
    value = repr(examples.settings[name]) if name in examples.settings else "missing"
    return UserError(
        f"{examples.folder / MANIFEST_FILE}: settings.{name} is {value}; expected {expected}: build the "
        "examples again"
    )


def _has_type(value: Any, type_: Any) -> bool:
    if type(value) is not (typing.get_origin(type_) or type_):
        return False
    if type_ is int:
        return 1 <= value <= MAX_SEQ_LEN
    if type_ == list[str]:
        return all(type(part) is str for part in value)
    if type_ == dict[str, str]:
        return all(type(part) is str for part in value.values())
    return True


def check_same_settings(trained_on: ExampleSet, other: ExampleSet, names: Sequence[str]):
    """Raises UserError unless one model can read both sets; they must agree in the named settings, too."""
    pairs = {
        "the tokenizer": (trained_on.tokenizer, other.tokenizer),
        "cleaning": (trained_on.cleaning, other.cleaning),
        "sequences": (trained_on.sequences, other.sequences),
        **{name: (trained_on.settings.get(name), other.settings.get(name)) for name in names},
    }
    for name, (expected, other_value) in pairs.items():
        if other_value != expected:
            raise UserError(
                f"{name} of {other.folder} is {other_value}, but the model is for {expected} "
                f"({trained_on.folder}): build both with the same settings"
            )


def check_segments(model: EncoderModelConfig, sets: Mapping[str, ExampleSet]):
    """Raises UserError unless the sets can be read in segments as the settings ask; "train" is trained on."""
    segment_len, memory_gradient = (getattr(model, name, 0) for name in ("segment_len", "memory_gradient"))
    if memory_gradient and not segment_len:
        raise UserError(
            f"task.model.memory_gradient (--memory_gradient) is {memory_gradient}, but texts are read at "
            "once, without memory: give --segment_len, too, or leave it out"
        )
    for examples in sets.values():
        if segment_len and examples.seq_len % segment_len:
            raise UserError(
                f"task.model.segment_len is {segment_len}, expected a divisor of {examples.seq_len}, the "
                f"tokens of the examples in {examples.folder}"
            )
    most = sets["train"].seq_len // segment_len - 1 if segment_len else 0
    if memory_gradient > most:
        raise UserError(
            f"task.model.memory_gradient (--memory_gradient) is {memory_gradient}, expected 0 to {most}: the "
            f"examples in {sets['train'].folder} have {most + 1} segments of {segment_len} tokens"
        )


def check_texts(checkpoint: Checkpoint, examples: ExampleSet):
    """Raises UserError if the files next to a checkpoint name another tokenizer or other cleaning."""
    path = checkpoint.path_of(TOKENIZER_FILE)
    if (
        tf.io.gfile.exists(path)
        and (tokenizer := XLNetTokenizer(path)).fingerprint != examples.tokenizer["sha256"]
        and not tokenizer.piece_table.splits_like(examples.load_tokenizer().piece_table)
    ):
        raise UserError(
            f"the examples in {examples.folder} were made with another tokenizer than that of the "
            f"checkpoint, {path}: build them with it"
        )
    from_checkpoint = checkpoint.card.cleaning
    cleaning = from_checkpoint.to_dict() if from_checkpoint else examples.cleaning
    if cleaning != examples.cleaning:
        raise UserError(
            f"the examples in {examples.folder} were cleaned by {examples.cleaning}, the texts of the "
            f"checkpoint {checkpoint.path} by {cleaning}: build the examples with --lower and --keep_accents "
            "as the checkpoint has them"
        )


def check_classes(checkpoint: Checkpoint, examples: ExampleSet, scopes: Sequence[str]):
    """Raises UserError if a checkpoint's head, which the model is to take over, is for other classes."""
    head = [scope for scope in scopes if f"{scope}/logits/kernel" in checkpoint.arrays]
    if not head:
        return
    card, from_checkpoint = checkpoint.card, {}
    known = task_registry.tasks().get(card.task or "")
    task = known.examples or known.name if known else card.task
    if task not in (None, task_registry.canonical(examples.task)):
        return
    if task and "kind" in examples.settings:
        from_checkpoint["kind"] = "multi_label" if card.multi_label else card.task
    if card.labels is not None:
        from_checkpoint["labels"] = list(card.labels)
    for name, trained in from_checkpoint.items():
        value = examples.settings.get(name)
        if trained != value:
            raise UserError(
                f"{name} of the head {head[0]} of {checkpoint.path} is {trained}, but of the examples in "
                f"{examples.folder} {value}: build them alike, begin with pretrained weights, or, for "
                "classification, begin another head with --params_override=task.model.head_name=NAME"
            )

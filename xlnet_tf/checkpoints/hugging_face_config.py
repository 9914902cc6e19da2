"""Converts the fields of Hugging Face's config.json to our architecture and settings, and back."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

CONFIG_FILE = "config.json"
MULTI_LABEL, SINGLE_LABEL = "multi_label_classification", "single_label_classification"  # its problem_type

_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "relu": "relu",
}
# How a model reads its texts and answers: its names, and those of our models' options.
_SETTINGS = {
    "attn_type": "attention_type",
    "same_length": "same_length",
    "clamp_len": "clamp_len",
    "summary_type": "summary",
    "start_n_top": "start_top",
    "end_n_top": "end_top",
}
# What the user of a model trains it further with; "dropout" is also that of attention.
_TRAINING_SETTINGS = {
    "dropout": "dropout",
    "summary_last_dropout": "dropout",
    "initializer_range": "initializer_range",
}
_UNNAMED = re.compile(r"LABEL_\d+")  # labels that nobody named


def is_config(values: dict[str, Any]) -> bool:
    """Returns whether fields are those of Hugging Face's config.json rather than of an xlnet_config.json."""
    return not values.keys().isdisjoint({"model_type", "vocab_size", "attn_type", "transformers_version"})


def read_config(values: dict[str, Any], path: str) -> XLNetConfig:
    """Turns the fields of a config.json into an architecture."""
    if values.get("model_type", "xlnet") != "xlnet":
        raise UserError(f"{path} is of model_type {values['model_type']!r}; expected 'xlnet'.")
    fields = {"untie_r": True, **values}
    if "vocab_size" in values:
        fields["n_token"] = values["vocab_size"]
    sizes = values.get("d_model"), values.get("n_head")
    if fields.get("d_head") is None and all(type(size) is int and size > 0 for size in sizes):
        fields["d_head"] = sizes[0] // sizes[1]
    if "ff_activation" in fields:
        if fields["ff_activation"] not in list(_ACTIVATIONS):  # a list compares whatever the file holds
            known = ", ".join(_ACTIVATIONS)
            raise UserError(f"{path}: ff_activation is {fields['ff_activation']!r}; expected one of {known}.")
        fields["ff_activation"] = _ACTIVATIONS[fields["ff_activation"]]
    if values.get("layer_norm_eps", 1e-12) != 1e-12:
        raise UserError(f"{path}: layer_norm_eps is {values['layer_norm_eps']}; XLNet's is 1e-12.")
    wanted = [field.name for field in dataclasses.fields(XLNetConfig)]
    return XLNetConfig.from_dict({name: fields[name] for name in wanted if name in fields}, path)


def read_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Returns how a model reads and answers, by the names of our models' options; values are not checked."""
    return {name: values[external] for external, name in _SETTINGS.items() if external in values}


def check_summary(values: Mapping[str, Any], projection: bool, path: str) -> None:
    """Raises UserError unless tanh follows the pooled vector's projection, or nothing, if there is none."""
    expected, activation = write_activation(projection), values.get("summary_activation", "tanh") or ""
    if values and activation != expected:
        raise UserError(
            f"{path}: summary_activation is {activation!r}; expected {expected!r}, which alone can be built "
            f"here {'after' if projection else 'without'} a projection."
        )


def write_activation(projection: bool) -> str:
    """Returns the field summary_activation; transformers 5 does not accept null for none."""
    return "tanh" if projection else ""


def write_config(config: XLNetConfig) -> dict[str, Any]:
    """Returns the fields of an architecture."""
    values = {"model_type": "xlnet", "layer_norm_eps": 1e-12, **config.to_dict()}
    values["vocab_size"] = values.pop("n_token")
    values["ff_activation"] = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}[config.ff_activation]
    return values


def write_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of settings, given by our names; unknown ones are left out."""
    names = _SETTINGS | _TRAINING_SETTINGS
    return {external: settings[name] for external, name in names.items() if name in settings}


def write_labels(labels: Sequence[str]) -> dict[str, Any]:
    by_id = {str(index): label for index, label in enumerate(labels)}
    return {"id2label": by_id, "label2id": {label: index for index, label in enumerate(labels)}}


def read_labels(values: dict[str, Any], path: str) -> tuple[str, ...] | None:
    """Returns the labels of the classes in order; None if they have no names."""
    by_id = values.get("id2label") or {}
    try:
        by_number = {int(index): str(label) for index, label in by_id.items()}
        if all(map(_UNNAMED.fullmatch, by_number.values())):
            return None
        return tuple(by_number[index] for index in range(len(by_id)))
    except (TypeError, ValueError, AttributeError, KeyError):
        raise UserError(
            f"{path}: id2label is {by_id!r}; expected the numbers from 0 on with their labels: correct the "
            "file."
        ) from None

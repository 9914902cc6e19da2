"""A checkpoint as the rest of the project sees it, whatever format it comes from."""

import dataclasses
import functools
import os
from collections.abc import Collection, Mapping
from typing import Any

from absl import logging

from xlnet_tf.checkpoints import hugging_face_config
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.text.tokenizer_json import model_file
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

CONFIG_FILE = "xlnet_config.json"
OUR_FILE = "weights.safetensors"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Weights under our names, and the architecture they belong to."""

    path: str
    format: str  # "original", "hugging_face", "keras_hub" or "ours"
    arrays: Arrays  # each read on demand. Variables that names.py does not know keep the name in the file.
    config: XLNetConfig | None
    stripped: tuple[str, ...] = ()  # names of optimizer slots and counters in the file, which no model needs
    # Of Hugging Face's config.json, if the architecture comes from one
    config_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    source: str = ""  # the requested path, or the name in the hub with its commit

    def path_of(self, name: str) -> str:
        """Returns the path of a file in the folder of the weights, whether it exists or not.

        The tokenizer's may be made from tokenizer.json (see model_file).
        """
        folder = os.path.dirname(self.path)
        if name == TOKENIZER_FILE:
            try:
                return str(model_file(folder))
            except UserError as error:  # weights may be used without it
                _warn_once(f"{error}; the model has no tokenizer")
        return os.path.join(folder, name)

    def without(self, names: Collection[str]) -> "Checkpoint":
        entries = {name: entry for name, entry in self.arrays.entries.items() if name not in names}
        return dataclasses.replace(self, arrays=Arrays(entries))

    @functools.cached_property
    def card(self) -> ModelCard:
        """The model card, read from the files in the folder of the weights."""
        known = {hugging_face_config.CONFIG_FILE: self.config_fields} if self.config_fields else None
        return ModelCard.read(os.path.dirname(self.path), known)


@functools.cache
def _warn_once(text: str) -> None:
    logging.warning("%s", text)

"""Finds the files of a tokenizer, and how its texts are cleaned."""

import dataclasses
import os

from absl import logging
from etils import epath

from xlnet_tf import files, hub
from xlnet_tf.errors import UserError
from xlnet_tf.text import cleaning as cleaning_lib
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig
from xlnet_tf.text.tokenizer_json import TOKENIZER_JSON_FILE, model_file, model_file_of
from xlnet_tf.text.vocabulary import TOKENIZER_FILE


def cleaning_for(path: str | os.PathLike, **options: bool | None) -> CleaningConfig:
    """Returns how to clean texts for a tokenizer: by the options, else by the files in its folder."""
    located = locate_tokenizer(path)
    folder = tokenizer_folder(located)
    stated = cleaning_lib.find(files.fields_reader(folder), folder)
    chosen = {name: value for name, value in options.items() if value is not None}
    cleaning = dataclasses.replace(stated or DEFAULT_CLEANING, **chosen)
    if stated and (other := [name for name in chosen if getattr(stated, name) != chosen[name]]):
        logging.warning(
            "the model of %s reads texts with %s, and these are built with %s: it cannot be trained on them. "
            "Leave out %s to build them for it",
            path,
            *(", ".join(f"{name} {getattr(each, name)}" for name in other) for each in (stated, cleaning)),
            ", ".join(f"--{name}" for name in other),
        )
    return cleaning


def find_file(path: str | os.PathLike) -> epath.Path:
    """Returns the SentencePiece model that XLNetTokenizer.from_pretrained loads."""
    return sentencepiece_file(locate_tokenizer(path))


def locate_tokenizer(path: str | os.PathLike) -> epath.Path:
    """Returns the folder or the file that a path or a name stands for."""
    located = epath.Path(hub.locate(path, tokenizer_only=True).folder)
    if not located.exists():
        raise FileNotFoundError(
            f"tokenizer {located} does not exist{hub.did_you_mean(str(located))}: expected a folder with "
            f"{TOKENIZER_FILE}, or such a file."
        )
    return located


def tokenizer_folder(located: epath.Path) -> epath.Path:
    """Returns the folder of what `locate_tokenizer` returned."""
    return located if located.is_dir() else located.parent


def sentencepiece_file(located: epath.Path) -> epath.Path:
    """Returns the SentencePiece model of a folder, or of a tokenizer's file."""
    if not located.is_dir():
        return model_file_of(located) if located.name == TOKENIZER_JSON_FILE else located
    file = model_file(located)
    if not file.exists():
        unread = hub.unread_tokenizer([child.name for child in located.iterdir()])
        raise UserError(f"{located} has no {TOKENIZER_FILE}{unread}: copy the model's tokenizer there.")
    return file

"""Text cleaning before SentencePiece: a small set of rules, each with its own setting."""

import dataclasses
import functools
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlnet_tf import files
from xlnet_tf.errors import UserError

CARD_FILE = "model.json"  # see checkpoints/model_card.py
MANIFEST_FILE = "manifest.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
# Hugging Face's names in tokenizer_config.json. Its tokenizer always normalizes quotes.
_HUGGING_FACE = {
    "do_lower_case": "lower",
    "keep_accents": "keep_accents",
    "remove_space": "collapse_whitespace",
}
# Since version 5 its tokenizer gives no token_type_ids unless the file asks for them; answers change without.
_HUGGING_FACE_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


@dataclasses.dataclass(frozen=True)
class CleaningConfig:
    """Which cleaning rules apply. The defaults are those of the released cased models.

    Attributes:
        lower: lower-case the text, last.
        keep_accents: False decomposes characters (NFKD) and drops the combining marks: accents in Latin
            scripts, but also umlauts, and vowel signs of scripts that cannot do without them.
        normalize_quotes: two backticks or two apostrophes become one double quote.
        collapse_whitespace: every run of whitespace becomes one space; none at either end.
    """

    lower: bool = False
    keep_accents: bool = False
    normalize_quotes: bool = True
    collapse_whitespace: bool = True

    def to_dict(self) -> dict[str, bool]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "CleaningConfig":
        """Reads what `to_dict` wrote."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name, value in settings.items():
            if name not in known:
                raise UserError(f"unknown cleaning setting {name!r}; expected some of {', '.join(known)}")
            if not isinstance(value, bool):
                raise UserError(f"cleaning setting {name!r} is {value!r}; expected true or false")
        return cls(**settings)

    def to_hugging_face(self) -> dict[str, Any]:
        """Returns the settings that Hugging Face's tokenizer_config.json has, by its names."""
        fields = {external: getattr(self, own) for external, own in _HUGGING_FACE.items()}
        return {**fields, "model_input_names": list(_HUGGING_FACE_INPUTS)}


DEFAULT_CLEANING = CleaningConfig()


def read_cleaning(folder: str | os.PathLike) -> CleaningConfig:
    """Returns how texts of a model or of records were cleaned; the default is the cased models' way."""
    read = files.fields_reader(folder)
    if (manifest := read(MANIFEST_FILE)) is not None and "cleaning" not in manifest:
        raise UserError(
            f"{folder}/{MANIFEST_FILE} has no 'cleaning'; expected the manifest of a run or of records."
        )
    return find(read, folder) or DEFAULT_CLEANING


def find(read: files.FieldsReader, folder: str | os.PathLike) -> CleaningConfig | None:
    """Returns how texts were cleaned according to the files that `read` reads; None if none of them says.

    They are our manifest.json and model.json, and Hugging Face's tokenizer_config.json.
    """
    external: dict[str, bool] = {}
    if "cleaning" in (fields := read(MANIFEST_FILE) or {}):
        file, settings = MANIFEST_FILE, fields["cleaning"]
    else:
        fields = read(CARD_FILE) or {}
        file, settings = CARD_FILE, fields.get("cleaning", {})
        values = None
        if "cleaning" not in fields or fields.get("format") == "hugging_face":
            values = read(TOKENIZER_CONFIG_FILE)
        if values is not None:
            # The last one is written by our save_pretrained.
            external_names = _HUGGING_FACE | {"normalize_quotes": "normalize_quotes"}
            external = {own: values[name] for name, own in external_names.items() if name in values}
        elif "cleaning" not in fields:
            return None
    if not isinstance(settings, dict):
        raise UserError(f"{folder}/{file}: cleaning is {settings!r}; expected an object with fields.")
    try:
        return CleaningConfig.from_dict(settings | external)
    except UserError as error:
        raise UserError(f"the tokenizer's settings in {folder}: {error}") from None


def clean_text(text: str, config: CleaningConfig = DEFAULT_CLEANING) -> str:
    """Cleans one text. Source: the original's prepro_utils.py, whose order of the rules is kept."""
    if config.collapse_whitespace:
        text = " ".join(text.split())
    if config.normalize_quotes:
        text = text.replace("``", '"').replace("''", '"')
    if not config.keep_accents and not text.isascii():
        # ASCII neither decomposes nor combines, so that only the rest need be looked at.
        text = _NON_ASCII.sub(strip_accents, text)
    if config.lower:
        text = text.lower()
    return text


def clean_texts(texts: Sequence[str], config: CleaningConfig = DEFAULT_CLEANING) -> list[str]:
    """Cleans many texts as `clean_text` does, fast: it processes only those that need it one by one."""
    texts = list(texts)
    but_case = dataclasses.replace(config, lower=False)
    for index in _changing(texts, but_case):
        texts[index] = clean_text(texts[index], but_case)
    return [text.lower() for text in texts] if config.lower else texts


def _changing(texts: Sequence[str], config: CleaningConfig) -> Sequence[int]:
    """Returns the indices of all texts that cleaning changes, and of a few that it may leave unchanged."""
    data = ("\n" + "\n".join(texts) + "\n").encode("utf-8", "surrogatepass")
    code = np.frombuffer(data, np.uint8)
    newline = code == ord("\n")
    newlines = np.flatnonzero(newline)
    if len(newlines) != len(texts) + 1:
        return range(len(texts))  # texts of several lines
    before, code = code[:-1], code[1:]  # each byte has one before it
    changed = np.zeros(len(code), bool)
    if config.collapse_whitespace:
        newline = newline[1:]
        space, space_before = code == ord(" "), before == ord(" ")
        changed |= (code < ord(" ")) & ~newline
        changed |= space & (space_before | (before == ord("\n"))) | newline & space_before
    if config.normalize_quotes:
        changed |= (code == before) & ((code == ord("`")) | (code == ord("'")))
    changed = np.flatnonzero(changed) + 1
    if len(data) > sum(map(len, texts)) + len(newlines):
        changed = np.concatenate([changed, _changed_characters(data, config)])
    return np.unique(np.searchsorted(newlines, changed) - 1).tolist()


def _changed_characters(data: bytes, config: CleaningConfig) -> np.ndarray:
    """Returns where, in UTF-8 text that ends in ASCII, characters begin that are not ASCII and change."""
    code = np.frombuffer(data, np.uint8)
    begins = np.flatnonzero(code >= 0xC0)
    first = code[begins]
    spelled = np.zeros((len(begins), 4), np.uint8)
    for offset, least in enumerate((0xC0, 0xC0, 0xE0, 0xF0)):  # a character's first byte gives its length
        longer = first >= least
        spelled[longer, offset] = code[begins[longer] + offset]
    distinct, which = np.unique(spelled.view(np.uint32)[:, 0], return_inverse=True)
    characters = [code.tobytes().rstrip(b"\0").decode("utf-8", "surrogatepass") for code in distinct]
    return begins[np.array([_changes(character, config) for character in characters], bool)[which]]


@functools.lru_cache(maxsize=1 << 16)
def _changes(character: str, config: CleaningConfig) -> bool:
    """Returns whether cleaning changes a non-ASCII character, which does not depend on its neighbours."""
    return clean_text(f"a{character}a", config) != f"a{character}a"


def strip_accents(match: re.Match) -> str:
    """Decomposes the matched characters (NFKD) and drops the combining marks."""
    decomposed = unicodedata.normalize("NFKD", match[0])
    if any(map(unicodedata.combining, decomposed)):
        return "".join(character for character in decomposed if not unicodedata.combining(character))
    return decomposed

"""Text cleaning before SentencePiece: one small set of rules, each of them a setting."""

import dataclasses
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from xlnet_tf.errors import UserError

_NON_ASCII = re.compile(r"[^\x00-\x7f]+")


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
        """Returns the settings as a dict that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "CleaningConfig":
        """Reads what `to_dict` wrote.

        Raises:
            UserError: a setting is unknown or not a bool.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name, value in settings.items():
            if name not in known:
                raise UserError(f"unknown cleaning setting {name!r}; expected some of {', '.join(known)}")
            if not isinstance(value, bool):
                raise UserError(f"cleaning setting {name!r} is {value!r}; expected true or false")
        return cls(**settings)


DEFAULT_CLEANING = CleaningConfig()


def clean_text(text: str, config: CleaningConfig = DEFAULT_CLEANING) -> str:
    """Cleans one text.

    Args:
        text: any string.
        config: which rules apply.

    Returns:
        The cleaned string. Source: the original's prepro_utils.py, whose order of the rules is kept.
    """
    if config.collapse_whitespace:
        text = " ".join(text.split())
    if config.normalize_quotes:
        text = text.replace("``", '"').replace("''", '"')
    if not config.keep_accents and not text.isascii():
        # ASCII neither decomposes nor combines, so that only the rest need be looked at.
        text = _NON_ASCII.sub(_strip_accents, text)
    if config.lower:
        text = text.lower()
    return text


def _strip_accents(match: re.Match) -> str:
    """Decomposes the matched characters (NFKD) and drops the combining marks."""
    decomposed = unicodedata.normalize("NFKD", match[0])
    if any(map(unicodedata.combining, decomposed)):
        return "".join(character for character in decomposed if not unicodedata.combining(character))
    return decomposed

"""Text cleaning before SentencePiece: one small set of rules, each of them a setting."""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from xlnet_tf.errors import UserError

_BLOCK_TEXTS = 64
_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
# What str.split() takes for a space, but for the space itself and the line feed; none lies beyond U+3000.
_WHITESPACE = [chr(code) for code in range(0x3001) if chr(code).isspace() and chr(code) not in " \n"]
_ASCII_WHITESPACE = [character for character in _WHITESPACE if character.isascii()]


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
    return _clean_characters(text, config)


def clean_texts(texts: Sequence[str], config: CleaningConfig = DEFAULT_CLEANING) -> list[str]:
    """Cleans many texts: `[clean_text(text, config) for text in texts]`, several times as fast.

    Args:
        texts: any strings.
        config: which rules apply.

    Returns:
        The cleaned strings, in order.
    """
    cleaned = []
    for begin in range(0, len(texts), _BLOCK_TEXTS):
        block = texts[begin : begin + _BLOCK_TEXTS]
        joined = "\n".join(block)
        # No rule looks across a line's end: blocks of tidy lines, the usual case, are cleaned as a whole.
        if joined.count("\n") != len(block) - 1 or (config.collapse_whitespace and _is_untidy(joined)):
            cleaned += [clean_text(text, config) for text in block]
        else:
            cleaned += _clean_characters(joined, config).split("\n")
    return cleaned


def _is_untidy(joined: str) -> bool:
    """Whether one of the joined texts holds whitespace other than single spaces between words."""
    whitespace = _ASCII_WHITESPACE if joined.isascii() else _WHITESPACE
    return (
        joined.startswith(" ")
        or joined.endswith(" ")
        or any(untidy in joined for untidy in ("  ", " \n", "\n "))
        or any(character in joined for character in whitespace)
    )


def _clean_characters(text: str, config: CleaningConfig) -> str:
    """Applies the rules that come after the one for whitespace."""
    if config.normalize_quotes:
        text = text.replace("``", '"').replace("''", '"')
    if not config.keep_accents and not text.isascii():
        text = _NON_ASCII.sub(lambda run: _strip_accents(run[0]), text)
    if config.lower:
        text = text.lower()
    return text


@functools.lru_cache(maxsize=4096)
def _strip_accents(run: str) -> str:
    """Decomposes a run of characters outside of ASCII and drops the combining marks."""
    decomposed = unicodedata.normalize("NFKD", run)
    return "".join(character for character in decomposed if not unicodedata.combining(character))

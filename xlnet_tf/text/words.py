"""Where words begin, among the pieces of a vocabulary and in a raw text; what the tags of words mark."""

import unicodedata
from collections.abc import Sequence

import numpy as np

# ASCII punctuation that starts a word when it is a piece of its own. The original's set leaves out the
# apostrophe, '=' and '>'.
START_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')

# Scripts that put no spaces between words: each piece in them may start a word.
_UNSPACED_SCRIPTS = frozenset(
    ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
)

# What a character is. A mark (an accent, say) belongs to the character before it; digits are letters.
LETTER, UNSPACED, SIGN, MARK, SPACE = "letter", "unspaced", "sign", "mark", "space"
KINDS = (LETTER, UNSPACED, SIGN, MARK, SPACE)
_VOICING_MARKS = "\uff9e\uff9f"  # of narrow kana: letters by category, but they decompose into marks


OUTSIDE = "O"  # the tag of words that are in no entity


def mark_entities(tags: Sequence[str]) -> bool:
    """Returns whether tags mark entities (O, B-X, I-X) of any number of words; others are of a word each."""
    return set(tags) == {OUTSIDE} or any(tag.startswith(("B-", "I-")) for tag in tags)


def in_unspaced_script(pieces: Sequence[str]) -> np.ndarray:
    """Returns bool [V]: pieces that begin with a character of a script without spaces between words."""
    unspaced = {first for first in {piece[0] for piece in pieces} if _is_unspaced(first)}
    return np.array([piece[0] in unspaced for piece in pieces])


def _is_unspaced(character: str) -> bool:
    return unicodedata.name(character, "").split(" ")[0] in _UNSPACED_SCRIPTS


def word_borders(text: str) -> dict[int, bool]:
    """Returns where words may begin, and whether the character or the one before it is unspaced."""
    borders = {}
    before = SPACE
    for index, character in enumerate(text):
        kind = character_kind(character)
        if kind == MARK:
            continue
        if kind != SPACE and (kind != before or kind != LETTER):
            borders[index] = UNSPACED in (kind, before)
        before = kind
    return borders


def character_kind(character: str) -> str:
    """Returns what a character is, one of KINDS."""
    category = unicodedata.category(character)
    if category[0] == "M" or category == "Cf" or character in _VOICING_MARKS:
        return MARK
    if category[0] in "LN":
        return UNSPACED if _is_unspaced(character) and not character.isascii() else LETTER
    # Characters newer than this Unicode, emojis as a rule, and of private use are signs.
    return SPACE if character.isspace() or category[0] == "Z" or category in ("Cc", "Cs") else SIGN

"""Where words may begin in a raw text, for tasks that need words of any language."""

import unicodedata

from xlnet_tf.text.tokenizer import UNSPACED_SCRIPTS

# What a character is. A mark (an accent, say) belongs to the character before it; digits are letters.
LETTER, UNSPACED, SIGN, MARK, SPACE = "letter", "unspaced", "sign", "mark", "space"
KINDS = (LETTER, UNSPACED, SIGN, MARK, SPACE)
_VOICING_MARKS = "\uff9e\uff9f"  # of narrow kana: letters by category, but they decompose into marks


def word_borders(text: str) -> dict[int, bool]:
    """Returns the characters of a text where a word may begin.

    Returns:
        index -> whether the character or the one before it is of a script without spaces between words.
    """
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
        unspaced = unicodedata.name(character, "").split(" ")[0] in UNSPACED_SCRIPTS
        return UNSPACED if unspaced and not character.isascii() else LETTER
    # Characters newer than this Unicode, emojis as a rule, and of private use are signs.
    return SPACE if character.isspace() or category[0] == "Z" or category in ("Cc", "Cs") else SIGN

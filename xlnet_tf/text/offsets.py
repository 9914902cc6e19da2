"""Maps pieces to the characters of the raw text, through cleaning and SentencePiece's normalization.

Every step maps each of its output characters to the offset in the raw text where it begins. A character ends
where the next one that begins elsewhere does, so that what one raw character becomes (a fraction, a ligature)
is never cut, and what a step drops (accents, control characters) belongs to the character before it.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import CleaningConfig, strip_accents
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import UNDERLINE

_UNEVEN_WHITESPACE = re.compile(r"^\s+|\s{2,}|[^\S ]")
_DOUBLED_QUOTES = re.compile("``|''")
_NON_ASCII = re.compile(r"[^\x00-\x7f]")


class Encoded(NamedTuple):
    """The pieces of a text and their offsets in it."""

    ids: list[int]  # [T] piece ids, as of `XLNetTokenizer.encode`
    # int32 [T], the first character of each piece in the raw text, without whitespace before it
    begins: np.ndarray
    # int32 [T], the character after its last. A piece that is only whitespace is empty (begins[i] ==
    # ends[i]), at the begin of the next piece.
    ends: np.ndarray


def check_offsets(tokenizer: XLNetTokenizer, file: str, needed_by: str) -> None:
    """Raises UserError if a tokenizer cannot give offsets for every text, as with byte fallback."""
    if tokenizer.piece_table.trainer.byte_fallback:
        raise UserError(
            f"{file} has byte fallback, so its pieces cannot be located in a text, as {needed_by} needs: "
            "give a SentencePiece model without byte fallback as --tokenizer"
        )


def encode_with_offsets(tokenizer: XLNetTokenizer, text: str) -> Encoded:
    """Encodes a raw text and finds each piece in it: piece i was made of `text[begins[i]:ends[i]]`.

    Spans are in the order of the text; two overlap only if one character became several pieces.
    """
    cleaned, cleaned_begins = clean_with_offsets(text, tokenizer.cleaning)
    normalized, offsets = tokenizer.normalize(cleaned)
    begins = cleaned_begins[offsets]  # [len(normalized) + 1]
    later = np.searchsorted(begins, begins[:-1], side="right")
    ends = np.append(begins, begins[-1])[later]
    visible = np.array([character != UNDERLINE for character in normalized], bool)
    begins, ends = np.append(begins[:-1][visible], begins[-1]), ends[visible]

    pieces = tokenizer.encode_pieces(text)
    counts = np.array([len(piece) - piece.count(UNDERLINE) for piece in pieces], np.int64)
    if counts.sum() != len(ends):
        raise UserError(
            f"the tokenizer's pieces have {counts.sum()} characters, but the text {text[:40]!r}... has "
            f"{len(ends)}: offsets need a SentencePiece model without byte fallback"
        )
    stops = np.cumsum(counts)
    piece_begins = begins[stops - counts]
    piece_ends = piece_begins.copy()
    piece_ends[counts > 0] = ends[stops[counts > 0] - 1]
    return Encoded(tokenizer.encode(text), piece_begins.astype(np.int32), piece_ends.astype(np.int32))


def clean_with_offsets(text: str, config: CleaningConfig) -> tuple[str, np.ndarray]:
    """Cleans a text as `clean_text` does, and returns the origin of its characters.

    The offsets, int64 [length of the cleaned text + 1], say where each character, and what follows the last,
    begins in `text`.
    """
    if config.collapse_whitespace:
        text = text.rstrip()
    begins = np.arange(len(text) + 1)
    if config.collapse_whitespace:
        text, begins = _substitute(
            _UNEVEN_WHITESPACE, lambda match: " " if match.start() else "", text, begins
        )
    if config.normalize_quotes:
        text, begins = _substitute(_DOUBLED_QUOTES, lambda match: '"', text, begins)
    if not config.keep_accents:
        text, begins = _substitute(_NON_ASCII, strip_accents, text, begins)
    if config.lower:
        # Lengths are those of single characters; the letters are not (a sigma that ends a word).
        begins = _substitute(_NON_ASCII, lambda match: match[0].lower(), text, begins)[1]
        text = text.lower()
    return text, begins


def _substitute(
    pattern: re.Pattern, replace: Callable[[re.Match], str], text: str, begins: np.ndarray
) -> tuple[str, np.ndarray]:
    """Does `pattern.sub(replace, text)` and updates `begins`: a replacement begins where its match does."""
    parts, offsets, done = [], [], 0
    for match in pattern.finditer(text):
        replacement = replace(match)
        parts += [text[done : match.start()], replacement]
        offsets += [begins[done : match.start()], np.repeat(begins[match.start()], len(replacement))]
        done = match.end()
    return "".join([*parts, text[done:]]), np.concatenate([*offsets, begins[done:]])

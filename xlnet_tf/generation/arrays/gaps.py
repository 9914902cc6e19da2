"""Texts with gaps: checks them, reads `<mask>` as a gap, and fills gaps with pieces.

Shapes: B batch, T tokens, G gaps, C fillings of a text.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.generation.settings import is_permutation
from xlnet_tf.text.special_tokens import EOP_ID, MASK_ID, PAD_ID, SYMBOLS
from xlnet_tf.text.tokenizer import XLNetTokenizer

MARK = SYMBOLS[MASK_ID]  # a gap of one piece, in texts to be filled only
MOST_GAPS = 256  # gaps of a text

_OTHER_MARKS = r"(?i)\[mask\]|<mask ?/?>|\{mask\}"  # what other models' users write


class Gaps(NamedTuple):
    """Texts with gaps."""

    ids: np.ndarray  # [B, T], with MASK_ID in the gaps
    is_context: np.ndarray  # bool [B, T], the given tokens
    order: np.ndarray  # [B, G], positions of the gaps in the order of filling, -1 after the last


def check_gaps(
    texts: Sequence[str], orders: Sequence[Sequence[int]] | str | None = None
) -> Sequence[Sequence[int]]:
    """Checks texts with gaps, and the orders of filling them: the numbers of each text's gaps, from 0."""
    counts = [text.count(MARK) for text in texts]
    for row, (text, count) in enumerate(zip(texts, counts)):
        # Lines to write on are text where there are gaps.
        other = re.search(_OTHER_MARKS if count else rf"{_OTHER_MARKS}|_{{2,}}", text.replace(MARK, " "))
        if other or not count:
            instead = f", instead of {other[0]}" if other else ""
            raise UserError(
                f"texts[{row}] is {short_repr(text)}; expected a {MARK} for each piece to fill in: write "
                f"{MARK}{instead}"
            )
        if count > MOST_GAPS:
            raise UserError(f"texts[{row}] has {count:,} {MARK}; expected at most {MOST_GAPS}")
    if orders is None:
        return [range(count) for count in counts]
    if isinstance(orders, str) or not isinstance(orders, (Sequence, np.ndarray)) or len(orders) != len(texts):
        raise UserError(
            f"orders is {short_repr(orders)}; expected a list of numbers for each of {len(texts)} texts"
        )
    for row, (numbers, count) in enumerate(zip(orders, counts, strict=True)):
        if not is_permutation(numbers, count):
            raise UserError(
                f"orders[{row}] is {short_repr(numbers)}; expected each of 0 to {count - 1}, the gaps of the "
                "text, once"
            )
    return orders


def read_gaps(tokenizer: XLNetTokenizer, texts: Sequence[str], orders: Sequence[Sequence[int]]) -> Gaps:
    """Reads texts in which `<mask>` marks the gaps, to be filled in these orders.

    A text is split at its marks: one with a space before or after it is a word, or the start or end of one.
    """
    return gaps_of([encode_with_marks(tokenizer, text.split(MARK)) for text in texts], orders)


def gaps_of(rows: Sequence[Sequence[int]], orders: Sequence[Sequence[int]]) -> Gaps:
    """Makes arrays of texts, given as ids with MASK_ID in their gaps, to be filled in these orders."""
    ids = np.full([len(rows), max(1, *map(len, rows))], PAD_ID, np.int32)
    positions = np.full([len(rows), max(1, *map(len, orders))], -1, np.int32)
    for row, (pieces, order) in enumerate(zip(rows, orders, strict=True)):
        ids[row, : len(pieces)] = pieces
        # No text can spell MASK_ID.
        positions[row, : len(order)] = np.flatnonzero(ids[row] == MASK_ID)[list(order)]
    return Gaps(ids, (ids != MASK_ID) & (ids != PAD_ID), positions)


def encode_with_marks(tokenizer: XLNetTokenizer, parts: Sequence[str]) -> list[int]:
    """Returns the ids of a text's parts with a mark before all but the first."""
    ids: list[int] = []
    for index, part in enumerate(parts):
        ids += [MASK_ID] * bool(index)
        if index and part and not part[0].isspace():
            # After a symbol that is always a piece of its own, text has no space before it.
            joined = tokenizer.encode(SYMBOLS[EOP_ID] + part)
            ids += joined[joined.index(EOP_ID) + 1 :]
        else:
            ids += tokenizer.encode(part)
    return ids


def fill_in(gaps: Gaps, row: int, tokens: np.ndarray) -> np.ndarray:
    """Returns the ids of one text with tokens [G] in its gaps, in the order of filling."""
    ids, order = gaps.ids[row].copy(), gaps.order[row]
    ids[order[order >= 0]] = tokens[order >= 0]
    return ids[: len(ids) - np.argmax(ids[::-1] != PAD_ID)]

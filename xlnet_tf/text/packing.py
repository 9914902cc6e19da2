"""Packs the pieces of one text, or of two, into the sequence of fixed length that XLNet is fine-tuned on.

One text becomes [A SEP CLS], two become [A SEP B SEP CLS]. CLS is the last token that is not padding,
whichever side is padded. No mask is stored: padding is where the id is PAD_ID, which no text can produce.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID

# A separator belongs to the text before it.
SEGMENT_A, SEGMENT_B, CLS_SEGMENT, PAD_SEGMENT = 0, 1, 2, 4
PADDING_SIDES = ("left", "right")

Ids = Sequence[int] | np.ndarray


class Packed(NamedTuple):
    """A sequence of T tokens: int32 ids and uint8 segments, whose numbers matter only for equality."""

    input_ids: np.ndarray
    segment_ids: np.ndarray


def pack(ids_a: Ids, ids_b: Ids | None = None, *, seq_len: int, padding: str = "left") -> Packed:
    """Puts special tokens around one text or two, cuts what is too long, and pads what is too short.

    To know what is cut, call `truncated` first.

    Args:
        ids_a: piece ids of the first text, without special tokens.
        padding: "left", as the original pads for all tasks but one, or "right", as it does for SQuAD.

    Example:
        >>> pack([17, 18], [19], seq_len=8)
        Packed(input_ids=array([ 5,  5, 17, 18,  4, 19,  4,  3], dtype=int32), ...

    Source: classifier_utils.py and squad_utils.py of the original, which write padding as `<unk>`, and give
    right padding the segment 3 instead of 4: padding is masked, so that neither reaches the model.
    """
    if padding not in PADDING_SIDES:
        raise UserError(f"padding is {padding!r}; expected one of {', '.join(PADDING_SIDES)}.")
    ids_a, ids_b, _ = truncated(ids_a, ids_b, seq_len)
    pieces, segments = [*ids_a, SEP_ID], [SEGMENT_A] * (len(ids_a) + 1)
    if ids_b is not None:
        pieces += [*ids_b, SEP_ID]
        segments += [SEGMENT_B] * (len(ids_b) + 1)
    pieces.append(CLS_ID)
    segments.append(CLS_SEGMENT)

    packed = Packed(np.full(seq_len, PAD_ID, np.int32), np.full(seq_len, PAD_SEGMENT, np.uint8))
    tokens = slice(0, len(pieces)) if padding == "right" else slice(seq_len - len(pieces), None)
    packed.input_ids[tokens], packed.segment_ids[tokens] = pieces, segments
    return packed


def truncated(ids_a: Ids, ids_b: Ids | None, seq_len: int) -> tuple[Ids, Ids | None, int]:
    """Cuts texts at their ends so that they fit a sequence of T tokens with its special ones.

    The longer of two texts loses piece by piece; if both are equally long, the second one does. Returns both
    texts, and how many pieces were dropped.
    """
    lengths = [len(ids_a), 0 if ids_b is None else len(ids_b)]
    room = seq_len - (2 if ids_b is None else 3)
    if room < 1:
        raise UserError(f"seq_len is {seq_len}, which leaves no room for text in addition to SEP and CLS.")
    excess = max(0, sum(lengths) - room)
    if not excess:
        return ids_a, ids_b, 0
    if ids_b is None:
        return ids_a[:room], None, excess
    longer = int(lengths[1] > lengths[0])
    lengths[longer] -= (alone := min(excess, abs(lengths[0] - lengths[1])))
    lengths[1] -= (excess - alone + 1) // 2
    lengths[0] -= (excess - alone) // 2
    return ids_a[: lengths[0]], ids_b[: lengths[1]], excess


def without_middle(ids: Ids, room: int) -> Ids:
    """Cuts a text in its middle: a quarter of the room is for its beginning, the rest for its end.

    Source: the proportion of Sun et al. 2019, How to fine-tune BERT for text classification: 128 of 510.
    """
    head = room // 4
    return ids if len(ids) <= room else np.concatenate([ids[:head], ids[head - room :]])

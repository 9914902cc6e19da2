"""Cuts a passage into overlapping windows and packs each with a question: [P SEP Q SEP CLS].

A window that is read in segments has the question in each: [P1 SEP Q SEP CLS | P2 SEP Q SEP CLS | ...]. The
segments follow each other without overlap, all full but the last one, and padding comes after it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlnet_tf.text.packing import PAD_SEGMENT, Packed, pack
from xlnet_tf.text.special_tokens import PAD_ID

NUM_SPECIAL = 3  # SEP, SEP and CLS


class Window(NamedTuple):
    """A part of a passage: the number of its first token, and how many it has."""

    first: int
    length: int


def split_windows(tokens: int, room: int, stride: int) -> list[Window]:
    """Cuts a passage into windows of at most `room` tokens, `stride` apart or less, that hold every token."""
    stride = min(stride, room)
    firsts = [0]
    while firsts[-1] + room < tokens:
        firsts.append(firsts[-1] + stride)
    return [Window(first, min(room, tokens - first)) for first in firsts]


def best_windows(windows: Sequence[Window], tokens: int | np.ndarray) -> np.ndarray:
    """Returns for each token the window that shows most of its surroundings: int64 [tokens].

    `tokens` is how many there are, or the numbers [tokens] of some of them.

    That is the window with the most tokens on the token's shorter side; of equals, the longer one; of these,
    the first. Source: run_squad.py of BERT and XLNet, which add 0.01 * length to the shorter side.
    """
    first, length = np.array(windows)[:, :, None].transpose(1, 0, 2)  # [windows, 1]
    left = (np.arange(tokens) if isinstance(tokens, int) else tokens) - first
    right = length - 1 - left
    context = np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * length, -1)
    return context.argmax(axis=0)


def window_room(question_len: int, seq_len: int, segment_len: int = 0) -> int:
    """Returns the most tokens of a passage in a window, read in segments or, if that is 0, at once."""
    segment_len = segment_len or seq_len
    return seq_len // segment_len * (segment_len - NUM_SPECIAL - question_len)


def pack_window(
    passage: Sequence[int], window: Window, question: Sequence[int], seq_len: int, segment_len: int = 0
) -> Packed:
    """Packs a window of a passage and a question, padded on the right to seq_len."""
    ids = passage[window.first : window.first + window.length]
    room = window_room(len(question), segment_len or seq_len)
    packed = Packed(np.full(seq_len, PAD_ID, np.int32), np.full(seq_len, PAD_SEGMENT, np.uint8))
    for segment in range(max(1, -(-window.length // room))):
        part = ids[segment * room : (segment + 1) * room]
        begin = segment * segment_len
        row = slice(begin, begin + (segment_len or seq_len))
        for whole, values in zip(packed, pack(part, question, seq_len=row.stop - begin, padding="right")):
            whole[row] = values
    return packed


def token_position(token, question_len: int, segment_len: int = 0):
    """Returns the position in the packed window of a token (or of each in an array) of the window."""
    if not segment_len:
        return token
    room = window_room(question_len, segment_len)
    return token // room * segment_len + token % room


def answer_mask(window: Window, question_len: int, seq_len: int, segment_len: int = 0) -> np.ndarray:
    """Returns where answers may begin and end: in the passage and, for no answer, on CLS; uint8 [T]."""
    mask = np.zeros(seq_len, np.uint8)
    mask[token_position(np.arange(window.length), question_len, segment_len)] = 1
    mask[cls_position(window, question_len, segment_len)] = 1
    return mask


def cls_position(window: Window, question_len: int, segment_len: int = 0) -> int:
    """Returns where CLS is in a packed window: the last one, if it has several."""
    last = token_position(window.length - 1, question_len, segment_len) if window.length else -1
    return last + question_len + NUM_SPECIAL

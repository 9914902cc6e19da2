"""Cuts a passage into overlapping windows and packs each with a question: [P SEP Q SEP CLS]."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlnet_tf.text.packing import Packed, pack

NUM_SPECIAL = 3  # SEP, SEP and CLS


class Window(NamedTuple):
    """A part of a passage.

    Attributes:
        first: its first token, counted in the passage.
        length: how many tokens it has.
    """

    first: int
    length: int


def split_windows(tokens: int, room: int, stride: int) -> list[Window]:
    """Cuts a passage into windows that together hold every token.

    Args:
        tokens: length of the passage.
        room: most tokens of a window, at least 1.
        stride: tokens from one window's begin to the next one's, at least 1; at most `room` is used, so that
            none is left out.

    Returns:
        The windows; one, of length 0, if there are no tokens.
    """
    stride = min(stride, room)
    firsts = [0]
    while firsts[-1] + room < tokens:
        firsts.append(firsts[-1] + stride)
    return [Window(first, min(room, tokens - first)) for first in firsts]


def best_windows(windows: Sequence[Window], tokens: int) -> np.ndarray:
    """Returns for each token the window that shows most of what surrounds it: int64 [tokens].

    That is the one with the larger smaller side, left or right of the token; of equals, the longer one; of
    these, the first. Source: run_squad.py of BERT and XLNet, which add 0.01 * length to the smaller side.
    """
    first, length = np.array(windows)[:, :, None].transpose(1, 0, 2)  # [windows, 1]
    left = np.arange(tokens) - first
    right = length - 1 - left
    context = np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * length, -1)
    return context.argmax(axis=0)


def pack_window(passage: Sequence[int], window: Window, question: Sequence[int], seq_len: int) -> Packed:
    """Packs a window of a passage and a question, padded on the right.

    Args:
        passage: piece ids of the whole passage.
        window: which of them.
        question: piece ids.
        seq_len: T, with room for all of them and the special tokens.
    """
    ids = passage[window.first : window.first + window.length]
    return pack(ids, question, seq_len=seq_len, padding="right")


def answer_mask(window: Window, question_len: int, seq_len: int) -> np.ndarray:
    """Returns where answers may begin and end: in the passage and, for no answer, on CLS; uint8 [T]."""
    mask = np.zeros(seq_len, np.uint8)
    mask[: window.length] = 1
    mask[cls_position(window, question_len)] = 1
    return mask


def cls_position(window: Window, question_len: int) -> int:
    """Returns where CLS is in a packed window."""
    return window.length + question_len + NUM_SPECIAL - 1

"""The original XLNet's segments and targets, draw for draw, including its flaws (the builder's --compat).

Two generators are used as in the original: Python's `random` cuts A and B, numpy's legacy `RandomState` picks
targets. With the same draws everything here equals the original's data_utils.py.
"""

import math
import random
from typing import NamedTuple

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.records.segments import Segments, assemble, num_segments
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID


class Cut(NamedTuple):
    """The positions of A and B in a row of tokens: A is [begin, a_end), B is [b_begin, b_end)."""

    a_end: int
    b_begin: int
    b_end: int
    label: int  # 1 where B was drawn as A's continuation


def split_a_and_b(
    choices: random.Random, borders: np.ndarray, num_tokens: int, begin: int, text_len: int
) -> Cut | None:
    """Cuts A, which begins at `begin`, and B for a segment of a row; None where the row ends too early.

    `borders` are the sorted positions where sentences begin, `text_len` is the tokens of A and B together.
    """
    if begin + text_len >= num_tokens:
        return None
    first = np.searchsorted(borders, begin, side="right")
    last = np.searchsorted(borders, begin + text_len, side="left")
    cut_points = borders[first:last].tolist()
    scan_end = int(borders[last]) if last < len(borders) else num_tokens

    # The coin is tossed only if there is a choice.
    if not cut_points or choices.random() < 0.5:
        label = 0
        a_end = choices.choice(cut_points) if cut_points else scan_end
        b_len = max(1, text_len - (a_end - begin))
        b_begin = choices.randint(0, num_tokens - 1 - b_len)
        b_end = b_begin + b_len
        # B grows to whole sentences, but never takes the row's last token: that is needed as its next token.
        before = np.searchsorted(borders, b_begin, side="right")
        b_begin = int(borders[before - 1]) if before else 0
        after = np.searchsorted(borders, b_end, side="left")
        b_end = min(int(borders[after]) if after < len(borders) else num_tokens, num_tokens - 1)
    else:
        label = 1
        a_end = b_begin = choices.choice(cut_points)
        b_end = scan_end

    while a_end - begin + b_end - b_begin > text_len:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    if a_end >= num_tokens or b_end >= num_tokens:
        return None
    return Cut(a_end, b_begin, b_end, label)


def sample_mask(
    numbers: np.random.RandomState,
    word_start: np.ndarray,
    goal: int | None,
    alpha: int = 6,
    beta: int = 1,
    max_gram: int = 5,
    reverse: bool = False,
) -> np.ndarray:
    """Picks the targets in one half of a segment, bool [L].

    Spans begin at a word's start but are n pieces long, not n words, because the original's search for the
    n-th word looks at the span's own start each time. If spans fall short of the goal, single tokens are
    added, including special ones.

    Args:
        word_start: bool [L], the pieces of the half that start a word, in the half's own order.
        goal: tokens to pick; None: as many as the spans give.
        alpha, beta: a span of n is followed and preceded by n * alpha // beta tokens of context.
        max_gram: longest span.
        reverse: whether the half is of a reversed row: it is sampled in the text's order.
    """
    length = len(word_start)
    if goal is not None and goal > length:
        raise UserError(f"{goal} targets wanted in half a segment of {length} tokens; at most {length} fit")
    if reverse:
        return sample_mask(numbers, word_start[::-1], goal, alpha, beta, max_gram)[::-1]
    wanted = math.inf if goal is None else goal
    span_lengths = np.arange(1, max_gram + 1)
    probabilities = 1.0 / span_lengths
    probabilities /= probabilities.sum(keepdims=True)
    starts = np.flatnonzero(word_start)

    mask = np.zeros(length, bool)
    picked = position = 0
    while position < length and picked < wanted:
        n = min(int(numbers.choice(span_lengths, p=probabilities)), wanted - picked)
        context = n * alpha // beta
        left = int(numbers.choice(context))
        next_start = np.searchsorted(starts, position + left)
        if next_start == len(starts):
            break
        begin = int(starts[next_start])
        if begin + n >= length:
            break
        mask[begin : begin + n] = True
        picked += n
        position = begin + n + context - left
    while goal is not None and picked < goal:
        filler = numbers.randint(length)
        picked += not mask[filler]
        mask[filler] = True
    return mask


def halves(seq_len: int, reuse_len: int, num_predict: int | None) -> tuple[int | None, int | None]:
    """Splits num_predict between the two halves of a segment, as in the original."""
    if 2 * reuse_len != seq_len:
        raise UserError(
            f"the original needs reuse_len = seq_len / 2; found reuse_len {reuse_len}, seq_len {seq_len}"
        )
    if num_predict is None:
        return None, None
    return num_predict - num_predict // 2, num_predict // 2


def segments_and_targets(
    choices: random.Random,
    numbers: np.random.RandomState,
    tokens: np.ndarray,
    sentence_ends: np.ndarray,
    seq_len: int,
    reuse_len: int,
    num_predict: int | None,
    *,
    piece_starts: np.ndarray,
    alpha: int = 6,
    beta: int = 1,
    max_words: int = 5,
    reverse: bool = False,
) -> tuple[Segments, np.ndarray]:
    """Cuts a stream into segments and picks targets, is_target bool [S, T], as the original does.

    The counterpart of `sample_segments` and `sample_segment_targets`, with their arguments. A row may have up
    to 3 targets fewer than num_predict, since the original also picks SEP and CLS and drops them later.
    `piece_starts`, bool [V], is `XLNetTokenizer.original_word_starts`; for the last ones see `sample_mask`.
    """
    goals = halves(seq_len, reuse_len, num_predict)
    borders = np.asarray(sentence_ends)[:-1]
    text_len = seq_len - reuse_len - 3
    cuts, masks = [], []
    for index in range(num_segments(len(tokens), seq_len, reuse_len)):
        begin = index * reuse_len
        if begin + seq_len > len(tokens):
            break
        cut = split_a_and_b(choices, borders, len(tokens), begin + reuse_len, text_len)
        if cut is None:
            break
        row = _row(tokens, begin, cut)
        cuts.append(cut)
        masks.append(_row_mask(numbers, piece_starts[row], reuse_len, goals, alpha, beta, max_words, reverse))

    begin = np.arange(len(cuts)) * reuse_len
    a_end, b_begin, _, label = np.array(cuts, np.int64).reshape(-1, 4).T
    starts = piece_starts[tokens]
    if reverse:
        starts = np.append(True, starts[:-1])
    segments = assemble(tokens, starts, a_end - begin - reuse_len, b_begin, label == 1, seq_len, reuse_len)
    is_masked = np.array(masks, bool).reshape(-1, seq_len)
    return segments, is_masked & ~segments.special


def _row(tokens, begin, cut):
    """Returns int [T]: one segment, [reused | A SEP B SEP CLS]."""
    b = tokens[cut.b_begin : cut.b_end]
    return np.concatenate([tokens[begin : cut.a_end], [SEP_ID], b, [SEP_ID, CLS_ID]])


def _row_mask(numbers, word_start, reuse_len, goals, alpha, beta, max_gram, reverse):
    """Returns bool [T]: the picked tokens of both halves of a segment."""
    parts = (word_start[:reuse_len], word_start[reuse_len:])
    masks = [
        sample_mask(numbers, part, goal, alpha, beta, max_gram, reverse) for part, goal in zip(parts, goals)
    ]
    return np.concatenate(masks)

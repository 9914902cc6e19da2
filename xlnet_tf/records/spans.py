"""Chooses the targets of pretraining segments: spans of whole words, exactly as many tokens as requested.

Targets are stored as flags or as positions, and form runs; functions here convert between them.
Shapes: S segments, T tokens of a segment (seq_len), R tokens of its first part (reuse_len), P targets of a
segment (num_predict).
"""

import math
from collections.abc import Mapping

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.records.ranks import random_bits
from xlnet_tf.records.segments import NUM_SPECIAL, Segments

SPAN_MODES = ("words", "pieces", "single")
# How targets are drawn by default, as in the paper: of each `alpha` tokens, `beta`.
MASK = {"alpha": 6, "beta": 1, "span_mode": "words", "max_words": 5}
MAX_RUN = 32  # longest run of adjacent targets that statistics count separately

_ROWS_AT_ONCE = 256  # few enough for the processor's cache
_NO_SPAN = 1 << 30
_INELIGIBLE = 1 << 31


def default_num_predict(seq_len: int) -> int:
    return round(seq_len * MASK["beta"] / MASK["alpha"])


def split_num_predict(num_predict: int, seq_len: int, reuse_len: int) -> tuple[int, int]:
    """Splits the targets of a segment between its two parts, in proportion to their lengths.

    For R = T / 2 these are the original's halves: 85 = 43 + 42.
    """
    second = num_predict * (seq_len - reuse_len) // seq_len
    parts = num_predict - second, second
    room = reuse_len, seq_len - reuse_len - NUM_SPECIAL
    if num_predict < 1 or parts[0] > room[0] or parts[1] > room[1]:
        counts = range(sum(room), -1, -1)
        seconds = (count * (seq_len - reuse_len) // seq_len for count in counts)
        largest = next(n for n, b in zip(counts, seconds) if n - b <= room[0] and b <= room[1])
        raise UserError(
            f"num_predict {num_predict} is impossible with seq_len {seq_len} and reuse_len {reuse_len}: the "
            f"parts of a segment would predict {parts[0]} of {room[0]} and {parts[1]} of {room[1]} tokens. "
            f"Expected 1 <= num_predict <= {largest}."
        )
    return parts


def sample_segment_targets(
    rng: np.random.Generator,
    segments: Segments,
    reuse_len: int,
    num_predict: int,
    *,
    alpha: float = 6,
    beta: float = 1,
    max_words: int = 5,
    span_mode: str = "words",
) -> np.ndarray:
    """Chooses num_predict targets in each row, part by part, none at SEP or CLS: bool [S, T]."""
    seq_len = segments.ids.shape[1]
    goals = split_num_predict(num_predict, seq_len, reuse_len)
    is_target = np.empty(segments.ids.shape, bool)
    for part, goal in zip((np.s_[:, :reuse_len], np.s_[:, reuse_len:]), goals):
        is_target[part] = sample_targets(
            rng,
            segments.word_start[part],
            ~segments.special[part],
            goal,
            alpha,
            beta,
            max_words=max_words,
            span_mode=span_mode,
        )
    return is_target


def sample_targets(
    rng: np.random.Generator,
    word_start: np.ndarray,
    eligible: np.ndarray,
    goal: int,
    alpha: float,
    beta: float,
    max_words: int = 5,
    span_mode: str = "words",
) -> np.ndarray:
    """Chooses exactly `goal` targets in every row, as spans of n whole words, P(n) ~ 1/n: bool [S, L].

    A row is divided into contexts of n * alpha / beta words, and each context holds one span of n words
    somewhere inside, followed by at least one word outside of spans. Spans are taken in random order until
    the goal is reached; the last one is cut. If the spans are too few, random words make up the rest.

    Args:
        word_start: bool [S, L], True where a word starts.
        eligible: bool [S, L], True where a target may be; every row has at least `goal` of them.
        alpha, beta: about `beta` of each `alpha` words are targets, if the goal agrees.
        max_words: longest span, in words.
        span_mode: "words"; "pieces", where each token counts as a word; "single", single tokens anywhere.

    Source: paper section 3.1 (span lengths and contexts), the original's `_sample_mask` (P(n)).
    """
    _check_settings(alpha, beta, max_words, span_mode)
    num_rows, length = word_start.shape
    room = int(np.count_nonzero(eligible, axis=1).min(initial=length))
    if goal > room:
        raise UserError(f"{goal} targets wanted in {length} tokens, of which only {room} may be predicted")

    starts = word_start.copy() if span_mode == "words" else np.ones_like(word_start)
    starts[:, 0] = True
    # [S + 1], words counted over all rows
    row_begin = np.append(0, np.cumsum(np.count_nonzero(starts, axis=1)))

    # A token's key: whether it is ineligible, whether it is outside of spans, the random key of its span or
    # word, its position. The smallest keys of a row are its targets: spans, then words, each as a whole.
    index_bits = (length - 1).bit_length()
    keys = random_bits(rng, row_begin[-1]) >> 2 | np.uint32(_NO_SPAN)  # by word
    if span_mode != "single":
        _rank_spans_first(rng, keys, row_begin, alpha / beta, max_words)
    keys &= np.uint32(-1 << index_bits & 0xFFFFFFFF)
    is_target = np.zeros(word_start.shape, bool)
    for first in range(0, num_rows if goal else 0, _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        word = np.cumsum(starts[rows], dtype=np.intp) + (row_begin[first] - 1)
        token_keys = keys.take(word).reshape(-1, length)
        token_keys |= np.arange(length, dtype=np.uint32)
        token_keys |= ~eligible[rows] * np.uint32(_INELIGIBLE)
        is_target[rows] = token_keys <= np.sort(token_keys, axis=1)[:, goal - 1 : goal]
    return is_target


def _rank_spans_first(rng, keys, row_begin, context_per_word, max_words):
    """Gives a span's words one key, lower than those of words outside of spans, in place; rows by begin."""
    row_words = np.diff(row_begin)[:, None]  # [S, 1]
    lengths = np.arange(1, max_words + 1)
    cumulative = np.cumsum(1 / lengths) / np.sum(1 / lengths)
    num_contexts = int(row_words.max(initial=0) / context_per_word) + max_words + 1
    draws = rng.random((len(row_words), num_contexts))  # [S, C]
    n = np.ones(draws.shape, np.int64)  # words in a span
    for limit in cumulative:
        n += draws >= limit
    # The first context begins somewhere before the row, so that no position of the row is special.
    phase = rng.integers(0, math.ceil(max_words * context_per_word), row_words.shape)
    contexts = n * context_per_word
    begins = np.floor(np.cumsum(contexts, axis=1) - contexts) - phase
    inside = np.flatnonzero((begins < row_words) & (begins + contexts > 0))
    row, n, begins = inside // num_contexts, n.ravel()[inside], begins.ravel()[inside]
    inset = np.floor(rng.random(len(n)) * (context_per_word - 1) * n)
    first = row_begin[row] + (begins + inset).astype(np.int64)
    span_keys = random_bits(rng, len(n)) >> 2
    word, end = np.maximum(first, row_begin[row]), np.minimum(first + n, row_begin[row + 1])
    while len(more := np.flatnonzero(word < end)):
        word, end, span_keys = word[more], end[more], span_keys[more]
        keys[word] = span_keys
        word += 1


def _check_settings(alpha, beta, max_words, span_mode):
    if not 0 < beta <= alpha:
        raise UserError(f"mask_alpha {alpha} and mask_beta {beta}: expected 0 < mask_beta <= mask_alpha")
    if max_words < 1:
        raise UserError(f"max_words is {max_words}; expected at least 1")
    if span_mode not in SPAN_MODES:
        raise UserError(f"span_mode is {span_mode!r}; expected one of {', '.join(SPAN_MODES)}")


def target_flags(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns bool [S, T], True at targets; empty or out-of-range slots are ignored."""
    count, seq_len = columns["input_ids"].shape
    positions = columns["target_positions"].astype(np.int64)
    flags = np.zeros((count, seq_len + 1), bool)
    positions[(positions < 0) | (positions > seq_len)] = seq_len  # the extra column
    np.put_along_axis(flags, positions, True, axis=1)
    return flags[:, :-1]


def target_positions(is_target: np.ndarray, num_predict: int) -> np.ndarray:
    """Lists each row's targets, ascending: bool [S, T] -> int16 [S, P], -1 in empty slots."""
    row, position = np.divmod(np.flatnonzero(is_target).astype(np.int32), np.int32(is_target.shape[1]))
    counts = np.count_nonzero(is_target, axis=1)
    if len(counts) and counts.min() == num_predict:
        return position.astype(np.int16).reshape(-1, num_predict)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = np.full((len(is_target), num_predict), -1, np.int16)
    positions[row, slot] = position
    return positions


def run_lengths(is_target: np.ndarray) -> np.ndarray:
    """Returns int [...], the length of each run of adjacent targets, in tokens; is_target is bool [S, T]."""
    padded = np.zeros((len(is_target), is_target.shape[1] + 1), bool)  # a run ends with its row
    padded[:, :-1] = is_target
    targets = np.flatnonzero(padded)
    first = np.append(0, np.flatnonzero(np.diff(targets) != 1) + 1)
    return np.diff(np.append(first, len(targets)))[: len(targets)]


def run_histogram(is_target: np.ndarray) -> np.ndarray:
    """Counts runs of adjacent targets: entry n - 1 of MAX_RUN counts those of n tokens (last: or more)."""
    return np.bincount(np.minimum(run_lengths(is_target), MAX_RUN) - 1, minlength=MAX_RUN)

"""Cuts a token stream into pretraining segments [reused | A SEP B SEP CLS].

Shapes: N tokens of the stream (num_tokens), S segments, T tokens of a segment (seq_len), R tokens of its
first part, which is reused (reuse_len).
"""

import dataclasses

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.records.spec import MAX_SEQ_LEN
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID

NUM_SPECIAL = 3  # SEP, SEP, CLS


@dataclasses.dataclass(frozen=True)
class Segments:
    """S segments of T tokens in the order of the text, each reuse_len tokens after the one before it."""

    ids: np.ndarray  # int32 [S, T]
    segment_ids: np.ndarray  # uint8 [S, T]: reused part, A and its SEP 0, B and its SEP 1, CLS 2
    next_sentence: np.ndarray  # int8 [S]: 1 where B continues A in the text, 0 where it comes from elsewhere
    special: np.ndarray  # bool [S, T], True at SEP and CLS
    # bool [S, T], True where a word starts. The first tokens of the segment, of A and of B always start a
    # word, even if a border cuts one; SEP and CLS are words of their own.
    word_start: np.ndarray
    # int32 [S, T], position of each token in the token stream, -1 for SEP and CLS
    source_positions: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def check_lengths(seq_len: int, reuse_len: int) -> None:
    """Raises UserError unless a segment has room for a reused part, A, B and the special tokens."""
    if seq_len > MAX_SEQ_LEN:
        raise UserError(f"seq_len {seq_len} is too long; records hold at most {MAX_SEQ_LEN} tokens")
    if not 0 < reuse_len <= seq_len - NUM_SPECIAL - 2:
        raise UserError(
            f"seq_len {seq_len} with reuse_len {reuse_len} leaves no room: at least 5 tokens must follow the "
            f"reused part (A, SEP, B, SEP, CLS). Expected 1 <= reuse_len <= {seq_len - 5}."
        )


def num_segments(num_tokens: int, seq_len: int, reuse_len: int) -> int:
    """Returns how many segments fit: each takes T - 3 text tokens from the stream."""
    return max(0, (num_tokens - (seq_len - NUM_SPECIAL)) // reuse_len + 1)


def mirror_ends(ends: np.ndarray, num_tokens: int) -> np.ndarray:
    """Returns the sorted exclusive ends (the last is N) of the same text in the reversed stream."""
    return np.append(num_tokens - ends[-2::-1], num_tokens)


def mirror_starts(starts: np.ndarray, num_tokens: int) -> np.ndarray:
    """Returns the sorted starts (the first is 0) of the same text in the reversed stream."""
    return np.append(0, num_tokens - starts[:0:-1])


def mirror_word_start(word_start: np.ndarray) -> np.ndarray:
    """Returns the word starts, bool [N], of the reversed stream, where a word's last token comes first."""
    return np.append(True, word_start[:0:-1])


def sample_segments(
    rng: np.random.Generator,
    tokens: np.ndarray,
    sentence_ends: np.ndarray,
    seq_len: int,
    reuse_len: int,
    word_start: np.ndarray,
) -> Segments:
    """Cuts a token stream into the S segments (possibly 0) that fit.

    Segment s reuses R tokens from position s * R on. A follows them and ends at a sentence end, drawn from
    those inside the remaining text (in its middle if there is none). B continues A with probability 1/2; else
    it is a stretch of the same length from elsewhere in the stream, which begins at a sentence's start,
    outside the segment's own window of T tokens. Where no such stretch exists, B continues A.

    Args:
        tokens: int [N], the stream; for reversed streams the reversed tokens, with mirrored borders.
        sentence_ends: int [...], sorted exclusive end positions of the sentences; the last one is N.
        word_start: bool [N], True where a word starts, in reading direction.

    Source: design of the original's `_split_a_and_b` and `create_tfrecords`, without their overlaps.
    """
    num_tokens = len(tokens)
    total = num_segments(num_tokens, seq_len, reuse_len)
    text_len = seq_len - reuse_len - NUM_SPECIAL  # tokens of A and B together
    begin = np.arange(total, dtype=np.int64) * reuse_len  # [S]
    a_begin = begin + reuse_len

    first = np.searchsorted(sentence_ends, a_begin, side="right")
    num_ends = np.searchsorted(sentence_ends, a_begin + text_len, side="left") - first
    chosen = first + (rng.random(total) * num_ends).astype(np.int64)
    chosen = np.minimum(chosen, len(sentence_ends) - 1)  # only where there is no end to choose
    a_end = np.where(num_ends > 0, sentence_ends[chosen], a_begin + text_len // 2)
    b_len = a_begin + text_len - a_end

    # Sentence starts that leave room for B before the window, then those after it.
    starts = np.append(0, sentence_ends[:-1])
    num_before = np.searchsorted(starts, begin - b_len, side="right")
    first_behind = np.searchsorted(starts, begin + seq_len, side="left")
    end_behind = np.searchsorted(starts, num_tokens - b_len, side="right")
    num_starts = num_before + np.maximum(end_behind - first_behind, 0)
    chosen = (rng.random(total) * num_starts).astype(np.int64)
    chosen += np.where(chosen < num_before, 0, first_behind - num_before)
    elsewhere = (rng.random(total) < 0.5) & (num_starts > 0)
    b_begin = np.where(elsewhere, starts[np.minimum(chosen, len(starts) - 1)], a_end)

    return assemble(tokens, word_start, a_end - a_begin, b_begin, ~elsewhere, seq_len, reuse_len)


def assemble(
    tokens: np.ndarray,
    word_start: np.ndarray,
    a_len: np.ndarray,
    b_begin: np.ndarray,
    contiguous: np.ndarray,
    seq_len: int,
    reuse_len: int,
) -> Segments:
    """Lays out segments whose cuts are known; their reused parts follow one another.

    a_len and b_begin, int [S], are the tokens of A and where B begins; contiguous, bool [S], is True where B
    continues A.
    """
    rows = np.arange(len(a_len))
    begin = rows * reuse_len
    columns = np.arange(seq_len - reuse_len, dtype=np.int32)  # positions after the reused part
    a_sep = a_len[:, None].astype(np.int32)  # [S, 1]
    in_b = columns > a_sep  # B, its SEP and CLS
    b_shift = (b_begin - (begin + reuse_len) - a_len - 1).astype(np.int32)

    positions = np.empty((len(rows), seq_len), np.int32)
    tail = positions[:, reuse_len:]
    np.add((begin + reuse_len)[:, None], columns, out=tail, casting="same_kind")
    tail += in_b * b_shift[:, None]
    tail[rows, a_len] = -1
    tail[:, -2:] = -1
    positions[:, :reuse_len] = _reused(np.arange(len(tokens), dtype=np.int32), len(rows), reuse_len)

    special = np.zeros(positions.shape, bool)
    special[rows, reuse_len + a_len] = True
    special[:, -2:] = True
    ids = np.empty(positions.shape, np.int32)
    ids[:, :reuse_len] = _reused(tokens, len(rows), reuse_len)
    ids[:, reuse_len:] = tokens.take(tail)
    ids[rows, reuse_len + a_len] = SEP_ID
    ids[:, -2] = SEP_ID
    ids[:, -1] = CLS_ID
    segment_ids = np.zeros(positions.shape, np.uint8)
    segment_ids[:, reuse_len:] = in_b
    segment_ids[:, -1] = 2
    starts = np.empty(positions.shape, bool)
    starts[:, :reuse_len] = _reused(word_start, len(rows), reuse_len)
    starts[:, reuse_len:] = word_start.take(tail)
    starts |= special
    starts[:, [0, reuse_len]] = True
    starts[rows, reuse_len + a_len + 1] = True
    return Segments(ids, segment_ids, contiguous.astype(np.int8), special, starts, positions)


def _reused(values: np.ndarray, count: int, reuse_len: int) -> np.ndarray:
    """Returns [S, R], the part of a stream's values [N] that segments reuse."""
    return values[: count * reuse_len].reshape(count, reuse_len)

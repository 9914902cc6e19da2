"""The original XLNet's segments and targets, draw for draw, its flaws included (the builder's --compat).

Two generators feed it as they fed the original: Python's `random` cuts A and B, numpy's legacy `RandomState`
orders files and picks targets. Given the same draws everything here equals the original's data_utils.py.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.records.segments import Segments, assemble, num_segments
from xlnet_tf.text.special_tokens import CLS_ID, EOD_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


class Cut(NamedTuple):
    """Where A and B lie in a row of tokens: A is [begin, a_end), B is [b_begin, b_end)."""

    a_end: int
    b_begin: int
    b_end: int
    label: int  # 1 where B was drawn as A's continuation
    next_begin: int  # where an objective without reuse would go on


def sentence_borders(flags: np.ndarray) -> np.ndarray:
    """Returns int [...], the positions in a row where the sentence flag (bool [N]) flips."""
    return np.flatnonzero(flags[1:] != flags[:-1]) + 1


def split_a_and_b(
    choices: random.Random, borders: np.ndarray, num_tokens: int, begin: int, text_len: int
) -> Cut | None:
    """Cuts A and B for one segment.

    Args:
        choices: Python's generator.
        borders: int [...], sorted positions inside the row where a new sentence begins.
        num_tokens: tokens N of the row.
        begin: where A begins.
        text_len: tokens of A and B together.

    Returns:
        The cut, or None where the row ends too early.
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
        behind = np.searchsorted(borders, b_end, side="left")
        b_end = min(int(borders[behind]) if behind < len(borders) else num_tokens, num_tokens - 1)
        next_begin = a_end
    else:
        label = 1
        a_end = b_begin = choices.choice(cut_points)
        b_end = next_begin = scan_end

    while a_end - begin + b_end - b_begin > text_len:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    if a_end >= num_tokens or b_end >= num_tokens:
        return None
    return Cut(a_end, b_begin, b_end, label, next_begin)


def sample_mask(
    numbers: np.random.RandomState,
    word_start: np.ndarray,
    goal: int | None,
    alpha: int = 6,
    beta: int = 1,
    max_gram: int = 5,
    reverse: bool = False,
) -> np.ndarray:
    """Picks the tokens of one half of a segment that are to be predicted.

    Spans begin at a word's start but are n pieces long, not n words, because the original's search for the
    n-th word looks at the span's own start each time. What spans leave open is filled with single tokens,
    functional ones included.

    Args:
        numbers: numpy's legacy generator.
        word_start: bool [L], the pieces of the half that start a word, in the half's own order.
        goal: tokens to pick, or None for what the spans give.
        alpha, beta: a span of n is followed and preceded by n * alpha // beta tokens of context.
        max_gram: longest span.
        reverse: whether the half is of a reversed row: it is sampled in the text's order.

    Returns:
        bool [L].

    Raises:
        UserError: the half holds fewer than `goal` tokens.
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
    """Splits num_predict between the halves of a segment.

    Raises:
        UserError: reuse_len is not half of seq_len, the only split the original knows.
    """
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
    """Cuts a stream into segments and picks targets as the original does.

    The counterpart of `segments.cut_segments` followed by `spans.sample_segment_targets`: the returned pair
    serves `ranks.sample_ranks` in the same way. Here a row has up to 3 targets fewer than num_predict, since
    the original picks SEP and CLS too and drops them later.

    Args:
        choices: Python's generator.
        numbers: numpy's legacy generator.
        tokens: int [N], the stream; reversed for reversed streams.
        sentence_ends: int [...], sorted exclusive sentence ends in that stream; the last one is N.
        seq_len: tokens T of a segment.
        reuse_len: tokens R of its first part, T / 2.
        num_predict: targets P of a segment; None for as many as the spans give.
        piece_starts: bool [V], the pieces that start a word: `XLNetTokenizer.original_word_starts`.
        alpha, beta, max_words: see `sample_mask`.
        reverse: whether the stream is reversed.

    Returns:
        (segments, is_target bool [S, T]).

    Raises:
        UserError: the lengths are not the original's, or num_predict does not fit.
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
    a_end, b_begin, _, label, _ = np.array(cuts, np.int64).reshape(-1, 5).T
    starts = piece_starts[tokens]
    if reverse:
        starts = np.append(True, starts[:-1])
    segments = assemble(
        tokens, starts, begin, a_end - begin - reuse_len, b_begin, label == 1, seq_len, reuse_len
    )
    is_masked = np.array(masks, bool).reshape(-1, seq_len)
    return segments, is_masked & ~segments.functional


def token_stream(
    tokenizer: XLNetTokenizer,
    files: Sequence[Iterable[str]],
    numbers: np.random.RandomState,
    use_eod: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Reads files as the original does: shuffled, then joined into one stream.

    Args:
        tokenizer: encodes the lines.
        files: the lines of each file: a sentence each, an empty one at a document's end.
        numbers: numpy's legacy generator; orders the files.
        use_eod: whether the end of a document becomes `<eod>`.

    Returns:
        (tokens int32 [N], flags bool [N]): the flag flips where a new sentence begins; `<eod>` keeps the flag
        of the sentence before it.
    """
    shards = []
    for lines in files:
        ids, flags, flag, seen = [], [], True, False
        for line in lines:
            seen = True
            line = line.strip()
            if line:
                encoded = tokenizer.encode(line)
            elif use_eod:
                encoded, flag = [EOD_ID], not flag
            else:
                continue
            ids += encoded
            flags += [flag] * len(encoded)
            flag = not flag
        if seen:
            shards.append((np.array(ids, np.int32), np.array(flags, bool)))
    tokens, flags = [], []
    for index in numbers.permutation(len(shards)):
        shard_tokens, shard_flags = shards[index]
        if flags and shard_flags[0] == flags[-1][-1]:
            shard_flags = ~shard_flags
        tokens.append(shard_tokens)
        flags.append(shard_flags)
    return np.concatenate(tokens), np.concatenate(flags)


def batch_rows(stream: np.ndarray, batch_size: int, num_cores: int, bidirectional: bool) -> np.ndarray:
    """Cuts a stream (tokens or flags) into the batch's rows; what does not fill all rows is dropped.

    Args:
        stream: [N].
        batch_size: rows B of a host.
        num_cores: cores that share them.
        bidirectional: in each core's rows, the second half are the first half reversed.

    Returns:
        [B, N // B], or [B, N // (B / 2)] if bidirectional.
    """
    rows = batch_size // 2 if bidirectional else batch_size
    row_len = len(stream) // rows
    forward = stream[: rows * row_len].reshape(num_cores, -1, row_len)
    parts = [forward, forward[:, :, ::-1]] if bidirectional else [forward]
    return np.concatenate(parts, axis=1).reshape(batch_size, row_len)


def batches(
    choices: random.Random,
    numbers: np.random.RandomState,
    tokens: np.ndarray,
    flags: np.ndarray,
    seq_len: int,
    reuse_len: int,
    num_predict: int | None,
    *,
    piece_starts: np.ndarray,
    alpha: int = 6,
    beta: int = 1,
    num_cores: int = 1,
    bidirectional: bool = True,
) -> Iterator[dict[str, np.ndarray]]:
    """Makes the original's records, batch by batch.

    Args:
        choices: Python's generator.
        numbers: numpy's legacy generator.
        tokens: int [B, N], the rows.
        flags: bool [B, N], their sentence flags.
        seq_len: tokens T of a segment.
        reuse_len: tokens R of its first part, T / 2.
        num_predict: targets P of a segment; None for as many as the spans give.
        piece_starts: bool [V], the pieces that start a word: `XLNetTokenizer.original_word_starts`.
        alpha, beta: see `sample_mask`.
        num_cores: cores that share the rows.
        bidirectional: whether the second half of each core's rows is reversed.

    Yields:
        The features of the original's TFRecords: input, target, seg_id, is_masked, int64 [B, T], and label
        int64 [B, 1]. It ends for all rows as soon as one row cannot go on.

    Raises:
        UserError: the lengths are not the original's, or num_predict does not fit.
    """
    goals = halves(seq_len, reuse_len, num_predict)
    num_rows, num_tokens = tokens.shape
    rows_per_core = num_rows // num_cores
    borders = [sentence_borders(row) for row in flags]
    for begin in range(0, num_tokens - seq_len + 1, reuse_len):
        a_begin = begin + reuse_len
        records = []
        for index in range(num_rows):
            cut = split_a_and_b(choices, borders[index], num_tokens, a_begin, seq_len - reuse_len - 3)
            if cut is None:
                return
            row = _row(tokens[index], begin, cut)
            reverse = bidirectional and index % rows_per_core >= rows_per_core // 2
            mask = _row_mask(numbers, piece_starts[row], reuse_len, goals, alpha, beta, 5, reverse)
            next_tokens = [
                tokens[index, begin + 1 : cut.a_end + 1],
                tokens[index, cut.b_begin : cut.b_end + 1],
                [CLS_ID, CLS_ID],
            ]
            a_len, b_len = cut.a_end - a_begin, cut.b_end - cut.b_begin
            records.append(
                {
                    "input": row,
                    "target": np.concatenate(next_tokens),
                    "seg_id": np.repeat([0, 1, 2], [reuse_len + a_len + 1, b_len + 1, 1]),
                    "is_masked": mask,
                    "label": [cut.label],
                }
            )
        yield {name: np.array([record[name] for record in records], np.int64) for name in records[0]}


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

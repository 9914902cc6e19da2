"""Whole records of the original's data_utils.py, from lines of text to batches: what tests compare with."""

import random
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tfrecord_builders.pretraining import compat_sampling
from xlnet_tf.text.special_tokens import CLS_ID, EOD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


def sentence_borders(flags: np.ndarray) -> np.ndarray:
    """Returns int [...], the positions in a row where the sentence flag (bool [N]) flips."""
    return np.flatnonzero(flags[1:] != flags[:-1]) + 1


def token_stream(
    tokenizer: XLNetTokenizer,
    files: Sequence[Iterable[str]],
    numbers: np.random.RandomState,
    use_eod: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Reads files as the original does: shuffled, then joined into one stream.

    Args:
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
    """Cuts a stream [N] into the rows [B, ...] of a host's batch; what does not fill all rows is dropped.

    If bidirectional, the second half of each core's rows are the first half reversed.
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
        tokens, flags: int and bool [B, N], the rows and their sentence flags.
        reuse_len: tokens R of a segment's first part, T / 2.
        num_predict: targets P of a segment; None for as many as the spans give.
        piece_starts: bool [V], the pieces that start a word: `XLNetTokenizer.original_word_starts`.

    Yields:
        The features of the original's TFRecords: input, target, seg_id, is_masked, int64 [B, T], and label
        int64 [B, 1]. It ends for all rows as soon as one row cannot continue.
    """
    goals = compat_sampling.halves(seq_len, reuse_len, num_predict)
    num_rows, num_tokens = tokens.shape
    rows_per_core = num_rows // num_cores
    borders = [sentence_borders(row) for row in flags]
    for begin in range(0, num_tokens - seq_len + 1, reuse_len):
        a_begin = begin + reuse_len
        records = []
        for index in range(num_rows):
            cut = compat_sampling.split_a_and_b(
                choices, borders[index], num_tokens, a_begin, seq_len - reuse_len - 3
            )
            if cut is None:
                return
            row = compat_sampling._row(tokens[index], begin, cut)
            reverse = bidirectional and index % rows_per_core >= rows_per_core // 2
            mask = compat_sampling._row_mask(
                numbers, piece_starts[row], reuse_len, goals, alpha, beta, 5, reverse
            )
            next_tokens = [
                tokens[index, begin + 1 : cut.a_end + 1],
                tokens[index, cut.b_begin : cut.b_end + 1],
                [CLS_ID, CLS_ID],
            ]
            records.append(
                {
                    "input": row,
                    "target": np.concatenate(next_tokens),
                    "seg_id": np.repeat([0, 1, 2], [cut.a_end - begin + 1, cut.b_end - cut.b_begin + 1, 1]),
                    "is_masked": mask,
                    "label": [cut.label],
                }
            )
        yield {name: np.array([record[name] for record in records], np.int64) for name in records[0]}

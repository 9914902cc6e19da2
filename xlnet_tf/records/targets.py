"""Targets of segments: as flags, as positions, and the runs that they form."""

from collections.abc import Mapping

import numpy as np

MAX_RUN = 32  # longest run of adjacent targets that statistics tell apart


def target_flags(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns bool [S, T], True at targets; slots that are empty or out of range are left out."""
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

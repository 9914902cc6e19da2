"""Targets as flags, as positions and as runs, against plain Python."""

import itertools

import numpy as np
import pytest

from xlnet_tf.records.spans import MAX_RUN, run_histogram, run_lengths, target_flags, target_positions


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
def test_positions_and_runs_are_those_of_the_flags(share):
    is_target = np.random.default_rng(0).random((50, 40)) < share
    counts = is_target.sum(axis=1)
    positions = target_positions(is_target, 40)
    for row, places in zip(is_target, positions):
        assert [p for p in places if p >= 0] == np.flatnonzero(row).tolist()
        assert (places[row.sum() :] == -1).all()
    columns = {"input_ids": np.zeros((50, 40)), "target_positions": positions}
    np.testing.assert_array_equal(target_flags(columns), is_target)
    runs = [len(list(run)) for row in is_target for flag, run in itertools.groupby(row) if flag]
    assert run_lengths(is_target).tolist() == runs
    histogram = run_histogram(is_target)
    assert histogram.sum() == len(runs) and histogram[-1] == sum(run >= MAX_RUN for run in runs)
    assert [(histogram[n - 1]) for n in range(1, MAX_RUN)] == [runs.count(n) for n in range(1, MAX_RUN)]
    assert counts.sum() == sum(runs)


def test_rows_with_equally_many_targets_no_rows_and_slots_out_of_range():
    is_target = np.array([[1, 0, 1], [0, 1, 1]], bool)
    assert target_positions(is_target, 2).tolist() == [[0, 2], [1, 2]]
    assert run_lengths(is_target).tolist() == [1, 1, 2]
    assert target_positions(is_target[:0], 2).shape == (0, 2) and not len(run_lengths(is_target[:0]))
    columns = {"input_ids": np.zeros((1, 4)), "target_positions": np.array([[-7, 3, 4, 99]])}
    assert target_flags(columns).tolist() == [[False, False, False, True]]

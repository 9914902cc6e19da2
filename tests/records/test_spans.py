"""Targets: exactly as many as wanted, whole words, the paper's lengths, spread evenly."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from xlnet_tf.errors import UserError
from xlnet_tf.records import spans
from xlnet_tf.records.spans import MAX_RUN, run_histogram, run_lengths, target_flags, target_positions


def draw_row(rng, num_rows, length, word_rate, eligible_rate=1.0):
    return rng.random((num_rows, length)) < word_rate, rng.random((num_rows, length)) < eligible_rate


def runs(flags):
    """Returns (begin, end) of the runs of True in bool [L]."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return edges.reshape(-1, 2)


@given(
    length=st.integers(1, 70),
    word_rate=st.sampled_from([0.0, 0.04, 0.3, 0.75, 1.0]),
    eligible_rate=st.sampled_from([1.0, 0.9, 0.5]),
    share=st.floats(0, 1),
    alpha=st.floats(1, 9),
    max_words=st.integers(1, 7),
    span_mode=st.sampled_from(spans.SPAN_MODES),
    seed=st.integers(0, 10_000),
)
@examples(200, 5000)
def test_the_count_is_exact_and_targets_are_eligible(
    length, word_rate, eligible_rate, share, alpha, max_words, span_mode, seed
):
    rng = np.random.default_rng(seed)
    word_start, eligible = draw_row(rng, 4, length, word_rate, eligible_rate)
    goal = int(share * eligible.sum(axis=1).min())
    targets = spans.sample_targets(rng, word_start, eligible, goal, alpha, 1, max_words, span_mode)
    np.testing.assert_array_equal(targets.sum(axis=1), goal)
    assert not (targets & ~eligible).any()
    if span_mode == "words":
        word_start[:, 0] = True
        for row in range(4):
            words = np.split(np.arange(length), np.flatnonzero(word_start[row])[1:])
            parts = [targets[row][word][eligible[row][word]] for word in words]
            cut = [part for part in parts if part.any() and not part.all()]
            assert len(cut) <= 1  # only the budget cuts a word, and it cuts it behind
            assert all(not part[np.argmin(part) :].any() for part in cut)


@pytest.mark.parametrize(
    "span_mode,goal,digest",
    [
        ("words", 16, "b125d93ca7d438d1"),
        ("pieces", 16, "7bfbc67a06db9e95"),
        ("single", 16, "5d9df7132a06d90b"),
        ("words", 60, "d00787d5228b2498"),  # more than the spans have: words at random make up the rest
        ("pieces", 60, "f694cfda028b8353"),
    ],
)
def test_draws_of_a_seed_are_pinned(span_mode, goal, digest):
    """A set that is built again, by whichever version, has the same bytes."""
    rng = np.random.default_rng(7)
    word_start = rng.random((50, 96)) < 0.6
    eligible = np.ones_like(word_start)
    targets = spans.sample_targets(rng, word_start, eligible, goal, 6, 1, span_mode=span_mode)
    assert hashlib.sha256(np.packbits(targets).tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("span_mode", ["words", "pieces"])
def test_span_lengths_follow_one_over_n(span_mode):
    rng = np.random.default_rng(0)
    word_start, eligible = draw_row(rng, 4000, 256, 0.7)
    word_start[:, 0] = True
    # Far fewer targets than the spans hold: nothing is filled up, and one span a row may be cut.
    targets = spans.sample_targets(rng, word_start, eligible, 20, 6, 1, span_mode=span_mode)
    counts = np.zeros(6, int)
    for row_targets, row_starts in zip(targets, word_start):
        for begin, end in runs(row_targets):
            if begin > 0 and end < 256 and (span_mode == "pieces" or row_starts[end]):
                counts[row_starts[begin:end].sum() if span_mode == "words" else end - begin] += 1
    frequency = counts[1:] / counts.sum()
    harmonic = 1 / np.arange(1, 6)
    np.testing.assert_allclose(frequency, harmonic / harmonic.sum(), atol=0.04)


def test_spans_do_not_touch_and_the_density_is_beta_over_alpha():
    rng = np.random.default_rng(1)
    word_start = np.ones((3000, 240), bool)
    keys = np.full(word_start.size, spans._NO_SPAN, np.uint32)
    spans._rank_spans_first(rng, keys, np.arange(0, keys.size + 1, 240), 6, 5)
    in_span = keys.reshape(word_start.shape) < spans._NO_SPAN
    assert abs(in_span.mean() - 1 / 6) < 0.003
    assert max(end - begin for row in in_span for begin, end in runs(row)) == 5
    targets = spans.sample_targets(rng, word_start, word_start, 40, 6, 1)
    np.testing.assert_allclose(targets.mean(axis=0), 1 / 6, atol=0.03)  # no position is special


@pytest.mark.parametrize("span_mode", spans.SPAN_MODES)
@pytest.mark.parametrize("goal", [10, 42, 100])
def test_targets_are_spread_evenly(span_mode, goal):
    rng = np.random.default_rng(2)
    word_start, eligible = draw_row(rng, 6000, 256, 0.75)
    rate = spans.sample_targets(rng, word_start, eligible, goal, 6, 1, span_mode=span_mode).mean(axis=0)
    tenths = rate[3:-3].reshape(10, -1).mean(axis=1)
    np.testing.assert_allclose(tenths, goal / 256, rtol=0.08)


def test_numbers_of_targets():
    """As the original halves them; a sixth of the tokens by default."""
    assert spans.split_num_predict(17, 64, 24) == (7, 10)
    assert spans.split_num_predict(85, 512, 256) == (43, 42)
    assert spans.split_num_predict(10, 64, 32) == (5, 5)
    assert [*map(spans.default_num_predict, (512, 128, 24))] == [85, 21, 4]
    nothing = np.ones((0, 10), bool)
    assert spans.sample_targets(np.random.default_rng(0), nothing, nothing, 3, 6, 1).shape == (0, 10)


@given(st.integers(1, 60), st.integers(2, 60))
@examples(60, 3000)
def test_an_impossible_num_predict_names_the_largest_possible(reuse_len, text_len):
    seq_len = reuse_len + text_len + 3
    with pytest.raises(UserError, match="num_predict 1000 is impossible") as error:
        spans.split_num_predict(1000, seq_len, reuse_len)
    largest = int(str(error.value).rstrip(".").split()[-1])
    if largest:
        first, second = spans.split_num_predict(largest, seq_len, reuse_len)
        assert first <= reuse_len and second <= text_len
    for impossible in range(largest + 1, largest + 4):
        with pytest.raises(UserError):
            spans.split_num_predict(impossible, seq_len, reuse_len)


def test_settings_out_of_range_are_refused():
    everywhere = np.ones((2, 10), bool)
    wrong = {"alpha": 0.5, "beta": 0, "max_words": 0, "span_mode": "letters", "goal": 11}
    for name, value in wrong.items():
        arguments = {"goal": 3, "alpha": 6, "beta": 1, name: value}
        with pytest.raises(UserError, match="only 10 may be" if name == "goal" else f"{name}.* {value!r}"):
            spans.sample_targets(np.random.default_rng(0), everywhere, everywhere, **arguments)


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

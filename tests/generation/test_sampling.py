"""Pieces are drawn from the distribution that the settings ask for, each row by its own."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet_tf.generation import sampling
from xlnet_tf.generation.settings import Sampling, same_for_all
from xlnet_tf.text.special_tokens import EOP_ID


def make(count, temperature=1.0, top_k=0, top_p=1.0):
    def rows(value, dtype):
        return tf.constant(np.broadcast_to(np.array(value, dtype), [count]))

    return Sampling(
        tf.range(count), rows(temperature, np.float32), rows(top_k, np.int32), rows(top_p, np.float32)
    )


def expected_distribution(log_probs, temperature, top_k, top_p):
    """By sorting: the likeliest top_k, of them the fewest that have top_p of their probability."""
    probabilities = np.exp(log_probs.astype(np.float64) / temperature)
    order = np.argsort(-probabilities, kind="stable")
    kept = order[: top_k or len(order)]
    shares = np.cumsum(probabilities[kept]) / probabilities[kept].sum()
    kept = kept[: 1 + np.searchsorted(shares, top_p)] if top_p < 1 else kept
    result = np.zeros_like(probabilities)
    result[kept] = probabilities[kept] / probabilities[kept].sum()
    return result


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 3, 9, 500]),
    top_p=st.sampled_from([0.001, 0.35, 0.8, 1.0]),
)
def test_draws_follow_the_distribution(seed, temperature, top_k, top_p):
    """Draws that are spread evenly over [0, 1) meet each piece as often as its probability says."""
    count = 400
    logits = np.random.default_rng(seed).normal(scale=2, size=40).astype(np.float32)
    log_probs = sampling.log_probabilities(logits).numpy()
    settings = make(count, temperature, top_k, top_p)
    draws = np.float32((np.arange(count) + 0.5) / count)
    chosen = sampling.choose(tf.repeat(log_probs[None], count, axis=0), draws, settings).numpy()
    frequencies = np.bincount(chosen, minlength=40) / count
    expected = expected_distribution(log_probs, temperature, top_k, top_p)
    np.testing.assert_array_equal(frequencies[expected == 0], 0)
    np.testing.assert_allclose(frequencies, expected, atol=1.5 / count)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_every_row_has_settings_of_its_own(jit_compile):
    rng = np.random.default_rng(1)
    log_probs = sampling.log_probabilities(rng.normal(size=[6, 40]).astype(np.float32))
    settings = make(6, [0, 1, 0.5, 2, 1, 0], [0, 0, 4, 0, 2, 1], [1, 0.7, 1, 0.9, 0.5, 0.1])
    choose = tf.function(sampling.choose, jit_compile=jit_compile, autograph=False)
    for draws in rng.random([3, 6]).astype(np.float32):
        together = choose(log_probs, draws, settings)
        for row in range(6):
            alone = Sampling(*(value[row : row + 1] for value in settings))
            assert sampling.choose(log_probs[row : row + 1], draws[row : row + 1], alone)[0] == together[row]
    np.testing.assert_array_equal(together[::5], np.argmax(log_probs, axis=1)[::5])


def test_equally_likely_pieces_are_all_kept():
    log_probs = np.log(np.float32([[0.1, 0.3, 0.3, 0.2, 0.1]]))
    for options in ({"top_k": 1}, {"top_p": 0.2}):
        chosen = [
            sampling.choose(log_probs, np.float32([draw]), make(1, **options)).numpy()[0]
            for draw in (0, 0.49, 0.51, 0.99)
        ]
        assert chosen == [1, 1, 2, 2]


def test_a_top_k_of_any_size_is_taken():
    for top_k in (2**31 - 1, 2**31, np.int64(2**62), 10**30):
        assert same_for_all(2, 1.0, top_k, 1.0, 0).top_k.tolist() == [2**31 - 1] * 2


def test_symbols_have_no_probability():
    log_probs = sampling.log_probabilities(np.zeros([2, 3, 12], np.float32))
    probabilities = np.exp(log_probs)
    np.testing.assert_array_equal(probabilities[..., :EOP_ID], 0)
    np.testing.assert_allclose(probabilities[..., EOP_ID:], 1 / 4)


def test_draws_depend_on_the_seed_alone():
    seeds = tf.constant([5, 6, 5, 2**40], tf.int64)
    draws = sampling.uniform_draws(seeds, 1000)
    np.testing.assert_array_equal(draws[0], draws[2])
    np.testing.assert_array_equal(draws[1:2, :10], sampling.uniform_draws(seeds[1:2], 10))
    compiled = tf.function(lambda seeds: sampling.uniform_draws(seeds, 1000), jit_compile=True)
    np.testing.assert_array_equal(compiled(seeds), draws)
    assert np.abs(np.corrcoef(draws.numpy()[[0, 1, 3]]) - np.eye(3)).max() < 0.1
    assert 0 <= np.min(draws) < 0.01 and 0.99 < np.max(draws) < 1

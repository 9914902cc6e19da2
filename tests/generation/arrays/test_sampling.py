"""Draws and choices in numpy are those of the graphs."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.generation import sampling as graph
from xlnet_tf.generation.arrays import sampling
from xlnet_tf.generation.settings import Sampling, WritingRules, same_for_all


def test_draws_are_the_same_bits():
    seeds = np.array([0, 1, -1, 5 << 20, -(1 << 63), (1 << 63) - 1])
    np.testing.assert_array_equal(sampling.uniform_draws(seeds, 9), graph.uniform_draws(seeds, 9))


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.6}, {"top_k": 9, "top_p": 0.4}])
def test_choices_are_the_same(options):
    rng = np.random.default_rng(0)
    log_probs = tf.nn.log_softmax(rng.normal(size=[400, 50]).astype(np.float32) * 3).numpy()
    log_probs[:, 7] = -np.inf
    settings = same_for_all(400, **{"temperature": 1.3, "top_k": 0, "top_p": 1.0, "seed": 3} | options)
    settings = settings._replace(temperature=np.where(np.arange(400) % 4, settings.temperature, 0))
    draws = sampling.uniform_draws(settings.seeds, 1)[:, 0]
    expected = graph.choose(log_probs, draws, Sampling(*map(tf.constant, settings))).numpy()
    np.testing.assert_array_equal(sampling.choose(log_probs, draws, settings), expected)
    assert len(set(expected)) > 5


def test_rules_change_the_same():
    rng = np.random.default_rng(0)
    log_probs = tf.nn.log_softmax(rng.normal(size=[3, 2, 50]).astype(np.float32) * 3).numpy()
    texts = rng.integers(0, 50, [3, 2, 9]).astype(np.int32)
    for forbidden, penalty in (([], 1), ([7, 49], 1), ([], 1.5), ([0, 3], 10)):
        rules = WritingRules(np.int32(forbidden), np.float32(penalty))
        found, before = sampling.apply_rules(log_probs, texts, rules), log_probs.copy()
        np.testing.assert_allclose(graph.apply_rules(log_probs, texts, rules), found, atol=1e-5)
        np.testing.assert_array_equal(log_probs, before)
        np.testing.assert_allclose(np.exp(found).sum(axis=2), 1, atol=1e-5)
        assert np.isneginf(found[:, :, forbidden]).all()


def test_equally_likely_pieces_are_kept_together():
    log_probs = np.log(np.float32([[0.4, 0.2, 0.2, 0.2]]))
    settings = same_for_all(1, 1.0, 2, 1.0, 0)
    chosen = {
        int(sampling.choose(log_probs, np.float32([draw]), settings)[0]) for draw in np.arange(0, 1, 0.05)
    }
    assert chosen == {0, 1, 2, 3}


def test_the_first_of_equals_comes_first():
    values = np.float32([[[1, 3, 3, -np.inf, 3, 0]], [[-np.inf, -np.inf, -np.inf, 2, -np.inf, -np.inf]]])
    for count in range(1, 7):
        found = sampling.top_k(values, count)
        for one, other in zip(found, tf.math.top_k(values, count)):
            np.testing.assert_array_equal(one, other)

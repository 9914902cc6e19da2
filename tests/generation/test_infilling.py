"""Gaps are filled jointly, and distinguished from predictions that know nothing of each other."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.generation.test_decoder import random_gaps
from tests.generation.test_decoding_loop import FEW_PIECES
from tests.helpers.models import uncached
from xlnet_tf.generation.infilling import fill_easiest_first, fill_jointly
from xlnet_tf.generation.layout import infilling
from xlnet_tf.generation.settings import Sampling
from xlnet_tf.text.special_tokens import EOP_ID, PAD_ID


@pytest.fixture(scope="module")
def model():
    return uncached.random_model()


def settings(batch, temperature=0.0):
    return Sampling(
        seeds=tf.range(batch),
        temperature=tf.fill([batch], temperature),
        top_k=tf.zeros([batch], tf.int32),
        top_p=tf.ones([batch]),
    )


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.integration)])
def test_joint_fills(model, jit_compile):
    ids, is_context, order = random_gaps(np.random.default_rng(0), batch=4, length=8, gaps=4)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(*layout):
        return fill_jointly(model, infilling(*layout), beams=3, guesses=5, xla=jit_compile)

    filled = run(ids, is_context, order)
    exists = order >= 0
    gaps = [order[:, gap, None] for gap in range(4)]
    apart = [uncached.logits(model, ids, is_context, gap, np.zeros([4, 1], np.int32)) for gap in gaps]
    apart = uncached.log_probabilities(np.concatenate(apart, axis=1))
    for candidate in range(3):
        tokens = filled.fills.tokens.numpy()[:, candidate]
        jointly = uncached.token_log_probabilities(model, ids, is_context, order, tokens)
        np.testing.assert_allclose(filled.fills.log_probs[:, candidate], jointly, atol=1e-4)
        expected = np.take_along_axis(apart, tokens[:, :, None], axis=2)[:, :, 0]
        np.testing.assert_allclose(filled.apart[:, candidate], np.where(exists, expected, 0), atol=1e-4)
    best = filled.fills.tokens.numpy()[:, 0]
    after = uncached.log_probabilities(uncached.logits(model, ids, is_context, order, best))
    for guesses, expected in ((filled.guesses, after), (filled.guesses_apart, apart)):
        ranked = np.argsort(-expected, axis=2)[:, :, :5]
        np.testing.assert_array_equal(guesses.tokens, np.where(exists[:, :, None], ranked, PAD_ID))
        values = np.where(exists[:, :, None], np.take_along_axis(expected, ranked, axis=2), 0)
        np.testing.assert_allclose(guesses.log_probs, values, atol=1e-4)


def test_the_best_joint_fill_is_not_always_that_of_each_gap_apart():
    """Against all fills there are, of texts for some of which the two differ."""
    model = uncached.random_model(FEW_PIECES, seed=2)
    texts = 16
    ids = np.random.default_rng(3).integers(9, 13, [texts, 6]).astype(np.int32)
    order = np.tile(np.int32([2, 3]), [texts, 1])
    is_context = np.tile((np.arange(6) != 2) & (np.arange(6) != 3), [texts, 1])
    fills = np.int32(list(itertools.product(range(EOP_ID, 13), repeat=2)))
    repeated = [np.repeat(values, len(fills), axis=0) for values in (ids, is_context, order)]
    scores = uncached.token_log_probabilities(model, *repeated, np.tile(fills, [texts, 1])).sum(axis=1)
    filled = fill_jointly(model, infilling(ids, is_context, order), beams=5, guesses=1)
    best = fills[scores.reshape(texts, -1).argmax(axis=1)]
    np.testing.assert_array_equal(filled.fills.tokens[:, 0], best)
    assert (filled.guesses_apart.tokens[:, :, 0] != best).numpy().any()


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.integration)])
@pytest.mark.parametrize("temperature", [0.0, pytest.param(1.0, marks=pytest.mark.integration)])
def test_easiest_first(model, temperature, jit_compile):
    """Each step fills, of the gaps that are open, the one whose best piece is likeliest; each row its own."""
    ids, is_context, gaps = random_gaps(np.random.default_rng(2), batch=4, length=8, gaps=4)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(*layout):
        return fill_easiest_first(model, infilling(*layout), settings(4, temperature), xla=jit_compile)

    written, order = run(ids, is_context, gaps)
    tokens, order = written.tokens.numpy()[:, 0], order.numpy()
    np.testing.assert_array_equal(np.sort(order), np.sort(gaps))
    expected = uncached.token_log_probabilities(model, ids, is_context, order, tokens)
    np.testing.assert_allclose(written.log_probs[:, 0], expected, atol=1e-4)
    for row in range(4):
        one = slice(row, row + 1)
        positions = order[row][order[row] >= 0]
        for step, position in enumerate(positions):
            ease = {}
            for gap in positions[step:]:
                path = np.append(order[row, :step], gap)[None]
                given = np.append(tokens[row, :step], 0)[None]
                logits = uncached.logits(model, ids[one], is_context[one], path, given)[0, -1]
                ease[gap] = uncached.log_probabilities(logits)
            assert max(ease, key=lambda gap: ease[gap].max()) == position
            if temperature == 0:
                assert ease[position].argmax() == tokens[row, step]

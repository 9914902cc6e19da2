"""Texts that are written with cached states are those that the whole model would write."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import uncached
from xlnet_tf.config import XLNetConfig
from xlnet_tf.generation import decoding_loop
from xlnet_tf.generation.layout import continuation, infilling
from xlnet_tf.generation.settings import Sampling, WritingRules
from xlnet_tf.text.special_tokens import EOP_ID, PAD_ID

# Five pieces can be written: <eop> and four words.
FEW_PIECES = XLNetConfig(n_token=13, n_layer=1, d_model=16, n_head=2, d_head=6, d_inner=20)
METHODS = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.3},
    "top_k": {"temperature": 1.0, "top_k": 4},
    "top_p": {"temperature": 1.0, "top_p": 0.7},
    "beam": {"beams": 3},
}
RULES = (11, 12, 30, 31, 48), 1.8  # pieces that are never written, and the penalty of a repetition


@pytest.fixture(scope="module")
def model():
    return uncached.random_model()


def generate(model, ids, lengths, new_tokens, method, seeds, most=5, stop_ids=(), xla=False, rules=None):
    layout = continuation(ids, lengths, new_tokens, most)
    rules = rules and WritingRules(np.int32(rules[0]), np.float32(rules[1]))
    if "beams" in method:
        return decoding_loop.search(model, layout, method["beams"], stop_ids, xla, rules)
    batch = tf.shape(ids)[0]
    settings = Sampling(
        seeds=seeds,
        temperature=tf.fill([batch], method["temperature"]),
        top_k=tf.fill([batch], method.get("top_k", 0)),
        top_p=tf.fill([batch], method.get("top_p", 1.0)),
    )
    return decoding_loop.sample(model, layout, settings, stop_ids, xla, rules)


@functools.cache
def traced(model, method, options):
    """A graph whose shapes are not known beforehand."""
    matrix, vector = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)
    return tf.function(
        lambda *tensors: generate(model, *tensors[:3], dict(method), tensors[3], **dict(options)),
        [matrix, vector, vector, vector],
        autograph=False,
    )


def run(model, ids, lengths, new_tokens, method, seeds, **options):
    function = traced(model, tuple(method.items()), tuple(options.items()))
    return function(*(tf.constant(values) for values in (ids, lengths, new_tokens, seeds)))


def prompts(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(9, 50, [4, 6]).astype(np.int32), np.int32([3, 6, 0, 5]), np.int32([5, 4, 5, 1])


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=[pytest.mark.integration] * (method in ("temperature", "top_k")))
        for method in METHODS
    ],
)
def test_probabilities_are_those_of_the_uncached_computation(model, method):
    ids, lengths, new_tokens = prompts()
    written = run(model, ids, lengths, new_tokens, METHODS[method], tf.range(4))
    order = continuation(ids, lengths, new_tokens, 5).order.numpy()
    is_context = np.arange(6) < lengths[:, None]
    assert not written.unfinished.numpy().any()
    for candidate in range(written.tokens.shape[1]):
        tokens = written.tokens.numpy()[:, candidate]
        np.testing.assert_array_equal(tokens == PAD_ID, order < 0)
        expected = uncached.token_log_probabilities(model, ids, is_context, order, tokens)
        np.testing.assert_allclose(written.log_probs[:, candidate], expected, atol=1e-4)
        if method == "greedy":
            logits = uncached.logits(model, ids, is_context, order, tokens)
            best = uncached.log_probabilities(logits).argmax(axis=-1)
            np.testing.assert_array_equal(np.where(order >= 0, best, PAD_ID), tokens)


def under_rules(log_probs, texts, rules):
    """What the rules make of log-probabilities [B, G, V], each after the pieces in a list of its own."""
    forbidden, penalty = rules
    changed = np.array(log_probs, np.float64)
    for row, of_row in enumerate(texts):
        for step, text in enumerate(of_row):
            for piece in range(changed.shape[2]):
                changed[row, step, piece] *= penalty if piece in text else 1
                changed[row, step, piece] -= np.inf if piece in forbidden else 0
    return changed - np.log(np.exp(changed).sum(axis=2, keepdims=True))


@pytest.mark.parametrize("method", ["greedy", "top_p", "beam"])
def test_rules_are_kept_as_if_all_were_computed_anew(model, method):
    ids, lengths, new_tokens = prompts()
    written = run(model, ids, lengths, new_tokens, METHODS[method], tf.range(4), rules=RULES)
    order = continuation(ids, lengths, new_tokens, 5).order.numpy()
    for candidate in range(written.tokens.shape[1]):
        tokens = written.tokens.numpy()[:, candidate]
        logits = uncached.logits(model, ids, np.arange(6) < lengths[:, None], order, tokens)
        texts = [[{*ids[row, : lengths[row]], *tokens[row, :step]} for step in range(5)] for row in range(4)]
        expected = under_rules(uncached.log_probabilities(logits), texts, RULES)
        if method == "greedy":
            np.testing.assert_array_equal(np.where(order >= 0, expected.argmax(axis=2), PAD_ID), tokens)
        expected = np.take_along_axis(expected, tokens[:, :, None], axis=2)[:, :, 0]
        np.testing.assert_allclose(
            written.log_probs[:, candidate], np.where(order >= 0, expected, 0), atol=1e-4
        )


@pytest.mark.parametrize("method", METHODS)
def test_a_row_in_a_batch_equals_the_row_alone(model, method):
    """Neither the rows next to it, nor their length, nor what lies in the padding counts."""
    ids, lengths, new_tokens = prompts()
    seeds = np.int32([7, 8, 9, 10])
    together = run(model, ids, lengths, new_tokens, METHODS[method], seeds)
    noise = np.where(np.arange(6) < lengths[:, None], ids, (ids + 7) % 50)
    noisy = run(model, noise, lengths, new_tokens, METHODS[method], seeds)
    np.testing.assert_array_equal(noisy.tokens, together.tokens)
    for row in range(4):
        one = slice(row, row + 1)
        prompt = ids[one, : max(1, lengths[row])]
        alone = run(model, prompt, lengths[one], new_tokens[one], METHODS[method], seeds[one])
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[row])
        np.testing.assert_allclose(alone.log_probs[0], together.log_probs[row], atol=1e-4)


@pytest.mark.parametrize("method", [pytest.param("top_p", marks=pytest.mark.integration), "beam"])
def test_xla_writes_the_same(model, method):
    ids, lengths, new_tokens = prompts()
    expected = run(model, ids, lengths, new_tokens, METHODS[method], tf.range(4), rules=RULES)
    compiled = tf.function(
        lambda *tensors: generate(model, *tensors, METHODS[method], tf.range(4), xla=True, rules=RULES),
        jit_compile=True,
        autograph=False,
    )
    found = compiled(ids, lengths, new_tokens)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=1e-4)


def test_texts_end_with_a_stop_symbol(model):
    ids, lengths, new_tokens = prompts()
    whole = run(model, ids, lengths, new_tokens, METHODS["greedy"], tf.range(4)).tokens.numpy()[:, 0]
    stop = whole[0, 1]
    found = run(model, ids, lengths, new_tokens, METHODS["greedy"], tf.range(4), stop_ids=(stop,))
    cut = found.tokens.numpy()[:, 0]
    for row in range(4):
        places = np.nonzero(whole[row] == stop)[0]
        end = places[0] + 1 if len(places) else 5
        np.testing.assert_array_equal(cut[row, :end], whole[row, :end])
        assert (cut[row, end:] == PAD_ID).all()


def test_beam_search_with_rules_finds_the_likeliest_texts():
    model, rules = uncached.random_model(FEW_PIECES, seed=3), ((EOP_ID,), 3.0)
    ids, order = np.int32([[10, 9]]), np.int32([[2, 3, 4]])
    texts = np.int32(list(itertools.product(range(EOP_ID + 1, 13), repeat=3)))
    repeated = [np.repeat(values, len(texts), axis=0) for values in (ids, ids > 0, order)]
    log_probs = uncached.log_probabilities(uncached.logits(model, *repeated, texts))
    before = [[{10, 9, *text[:step]} for step in range(3)] for text in texts.tolist()]
    scores = under_rules(log_probs, before, rules)
    scores = np.take_along_axis(scores, texts[:, :, None], axis=2)[:, :, 0].sum(axis=1)
    best = np.argsort(-scores)[:16]
    found = run(model, ids, np.int32([2]), np.int32([3]), {"beams": 64}, np.int32([0]), most=3, rules=rules)
    np.testing.assert_array_equal(found.tokens[0, :16], texts[best])
    np.testing.assert_allclose(found.totals[0, :16], scores[best], atol=1e-4)


@pytest.mark.parametrize("stop_ids", [[], [EOP_ID]])
def test_beam_search_finds_the_likeliest_texts(stop_ids):
    """With as many beams as there are prefixes, it is exact: against all texts there are."""
    model = uncached.random_model(FEW_PIECES, seed=3)
    ids = np.int32([[10, 9, 0, 0, 12, 11, 0, 9]])
    is_context, order = ids > 0, np.int32([[6, 2, 3]])
    texts = np.int32(list(itertools.product(range(EOP_ID, 13), repeat=3)))
    repeated = [np.repeat(values, len(texts), axis=0) for values in (ids, is_context, order)]
    scores = uncached.token_log_probabilities(model, *repeated, texts)
    expected = {}
    for text, score in zip(texts.tolist(), scores):
        end = text.index(EOP_ID) + 1 if stop_ids and EOP_ID in text else 3
        expected[(*text[:end], *[PAD_ID] * (3 - end))] = score[:end].sum()
    best = sorted(expected, key=expected.get, reverse=True)[:25]

    written = decoding_loop.search(model, infilling(ids, is_context, order), 25, stop_ids)
    assert [tuple(text) for text in written.tokens[0].numpy()] == best
    np.testing.assert_allclose(written.totals[0], [expected[text] for text in best], atol=1e-4)


def test_more_beams_than_texts():
    model = uncached.random_model(FEW_PIECES)
    written = run(
        model, np.int32([[9, 10]]), np.int32([2]), np.int32([1]), {"beams": 8}, np.int32([0]), most=1
    )
    tokens, totals = written.tokens[0, :, 0].numpy(), written.totals[0].numpy()
    assert sorted(tokens[:5]) == list(range(EOP_ID, 13))
    assert np.exp(totals[:5]).sum() == pytest.approx(1) and np.isneginf(totals[5:]).all()

"""A step with cached content states predicts what the whole model predicts."""

import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.models import uncached
from tests.helpers.models.cases import N_TOKEN, architectures
from tests.helpers.profiles import examples
from xlnet_tf.errors import UserError
from xlnet_tf.generation.decoder import CachedDecoder
from xlnet_tf.generation.layout import continuation, infilling
from xlnet_tf.generation.settings import by_length


def steps(decoder, order, tokens):
    """Writes given tokens [B, G] in an order [B, G]; returns the logits of each step, [B, G, V]."""
    logits, cache = decoder.start(order[:, :1])
    found = [logits]
    for number in range(1, order.shape[1]):
        last, target = order[:, number - 1, None], order[:, number, None, None]
        logits, cache = decoder.step(cache, tokens[:, number - 1, None], last, target)
        found.append(logits[:, 0])
    return tf.concat(found, axis=1)


def random_gaps(rng, batch, length, gaps):
    """Texts with up to `gaps` tokens to write, in an order of their own; some have fewer, or padding."""
    ids = rng.integers(9, N_TOKEN, [batch, length]).astype(np.int32)
    is_context, order = np.ones([batch, length], bool), np.full([batch, gaps], -1, np.int32)
    for row in range(batch):
        count = gaps if row == 0 else rng.integers(1, gaps + 1)
        order[row, :count] = rng.permutation(length)[:count]
        is_context[row, order[row, :count]] = False
        is_context[row, rng.permutation(length)[: rng.integers(0, 3)]] = False
    return ids, is_context, order


def check(model, ids, is_context, order, tokens, found):
    """Compares logits [B, G, V] with the model's own, where there is something to write."""
    expected = uncached.logits(model, ids, is_context, order, tokens)
    np.testing.assert_allclose(found.numpy()[order >= 0], expected[order >= 0], atol=1e-4)


@examples(8, 200)
@given(config=architectures(), data=st.data())
def test_any_order_equals_the_uncached_computation(config, data):
    draw = data.draw
    seed, kind = draw(st.integers(0, 99)), draw(st.sampled_from(["bi", "uni"]))
    lengths = {"clamp_len": draw(st.sampled_from([-1, 1, 3])), "memory_len": draw(st.sampled_from([0, 4]))}
    model = uncached.random_model(config, seed=seed, attention_type=kind, **lengths)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ids, is_context, order = random_gaps(rng, batch=3, length=draw(st.integers(5, 9)), gaps=4)
    tokens = rng.integers(9, N_TOKEN, order.shape).astype(np.int32)
    found = steps(CachedDecoder(model, infilling(ids, is_context, order)), order, tokens)
    check(model, ids, is_context, order, tokens, found)


def test_prompts_of_different_length_are_continued_at_their_ends():
    layout = continuation(np.zeros([4, 6], np.int32), np.int32([6, 2, 0, 5]), np.int32([4, 3, 4, 1]), 4)
    np.testing.assert_array_equal(layout.order, [[6, 7, 8, 9], [2, 3, 4, -1], [0, 1, 2, 3], [5, -1, -1, -1]])


def test_bfloat16_is_near_float32():
    ids, is_context, order = random_gaps(np.random.default_rng(3), batch=2, length=8, gaps=3)
    tokens = np.full(order.shape, 17, np.int32)
    found = {}
    for policy in ("float32", "mixed_bfloat16"):
        tf_keras.mixed_precision.set_global_policy(policy)
        try:
            model = uncached.random_model(initializer_range=0.1)
            found[policy] = steps(CachedDecoder(model, infilling(ids, is_context, order)), order, tokens)
        finally:
            tf_keras.mixed_precision.set_global_policy("float32")
    assert found["mixed_bfloat16"].dtype == tf.float32
    np.testing.assert_allclose(found["mixed_bfloat16"], found["float32"], atol=0.05)


@pytest.mark.parametrize(
    "options", [{"attention_type": "uni", "same_length": True}, {"uniform_when_blind": True}]
)
def test_attention_that_hides_or_leaks_is_refused(options):
    layout = continuation(np.int32([[9]]), np.int32([1]), np.int32([1]), 1)
    with pytest.raises(UserError, match="expected False"):
        CachedDecoder(uncached.random_model(**options), layout)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_progress_ends_at_the_number_of_texts(monkeypatch, batch_size):
    """The progress bar shows "8/?" if its count exceeds the total."""
    bar = unittest.mock.MagicMock()
    monkeypatch.setattr("xlnet_tf.generation.settings.ProgressBar", bar)
    assert sorted(np.concatenate([*by_length([5, 1, 3, 2], batch_size)])) == [0, 1, 2, 3]
    assert sum(call.args[0] for call in bar().__enter__().update.call_args_list) == 4

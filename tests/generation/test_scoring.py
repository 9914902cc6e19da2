"""Likelihoods: the chain rule, token by token, and nothing but the text itself matters."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.generation import scoring
from xlnet_tf.generation.arrays.scoring import score_texts
from xlnet_tf.generation.graphs import LanguageModelGraphs
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer

CONFIG = XLNetConfig(n_token=14, n_layer=1, d_model=16, n_head=2, d_head=6, d_inner=20)
CLS, SEP, PAD = 3, 4, 5


@pytest.fixture(scope="module")
def model():
    tf_keras.utils.set_random_seed(0)
    model = XLNetPretrainer(XLNetEncoder(CONFIG, initializer_range=0.4))
    model.build()
    model.lm_bias.assign(np.random.default_rng(0).normal(size=CONFIG.n_token))
    return model


def random_rows(rng, lengths, n_token=CONFIG.n_token):
    return tf.ragged.constant([rng.integers(9, n_token, length).tolist() for length in lengths], tf.int32)


def nothing(rows):
    return tf.ragged.constant([[]] * rows, tf.int32, ragged_rank=1)


def score(model, contexts, texts, length=9, order="left_to_right", seeds=None):
    features, is_scored = scoring.join_contexts(contexts, texts, length)
    places = scoring.order_ranks(is_scored, order, seeds)
    return scoring.token_log_probabilities(model, features, is_scored, places)


def chain(model, ids, order):
    """The log-probabilities of tokens in an order, one model call for each; unknown tokens are random.

    Args:
        ids: [T] ids, context included.
        order: the positions of the scored tokens in the order of their prediction.
    """
    rng = np.random.default_rng(1)
    log_probabilities = np.zeros(len(ids), np.float32)
    known = [position for position in range(len(ids)) if position not in order]
    visible = np.zeros([len(ids), len(ids)], bool)
    visible[np.ix_(known, known)] = True
    for position in order:
        visible[position, known] = True
        seen = np.where(np.isin(np.arange(len(ids)), known), ids, rng.integers(0, CONFIG.n_token, len(ids)))
        features = {"input_word_ids": seen[None].astype(np.int32)}
        features |= {"input_type_ids": np.zeros([1, len(ids)], np.int32), "permutation_mask": visible[None]}
        logits = model({**features, "target_positions": np.int32([[position]])})["logits"][0, 0]
        log_probabilities[position] = tf.nn.log_softmax(logits)[ids[position]]
        known.append(position)
    return log_probabilities


@pytest.mark.parametrize("order", [*scoring.ORDERS, "permutation"])
def test_equals_the_chain_of_conditional_probabilities(model, order):
    rng = np.random.default_rng(2)
    contexts, texts = random_rows(rng, [0, 3, 1, 0]), random_rows(rng, [5, 4, 0, 1])
    features, is_scored = scoring.join_contexts(contexts, texts, 8)
    if order == "permutation":
        permutation = np.int32([[3, 0, 4, 1, 2, -1], [1, 3, 2, 0, -1, -1], [-1] * 6, [0] + [-1] * 5])
        places = np.zeros(is_scored.shape, np.int32)
        orders = [[number for number in row if number >= 0] for row in permutation]
        places[is_scored.numpy()] = np.concatenate([*map(np.argsort, orders)])
    else:
        places = scoring.order_ranks(is_scored, order, np.int32([7, 8, 9, 10]))
    found = scoring.token_log_probabilities(model, features, is_scored, places).numpy()
    for row, (context, text) in enumerate(zip(contexts.numpy(), texts.numpy())):
        positions = len(context) + np.arange(len(text))
        in_order = sorted(positions, key=lambda position: places[row, position])  # noqa: B023
        if order == "permutation":
            assert [p - len(context) for p in in_order] == [n for n in permutation[row] if n >= 0]
        expected = np.pad(chain(model, np.concatenate([context, text]).astype(int), in_order), (0, 8))[:8]
        np.testing.assert_allclose(found[row], expected, atol=2e-5)
        assert (found[row] < 0).sum() == len(text)


def test_orders_are_what_their_names_say():
    is_scored = tf.constant([[False, True, True, False, True], [False, False, False, True, False]])

    def places(order, seeds=None):
        return scoring.order_ranks(is_scored, order, seeds).numpy()[is_scored.numpy()].tolist()

    assert places("left_to_right") == [0, 1, 2, 0]
    assert places("right_to_left") == [2, 1, 0, 0]
    found = {tuple(places("random", np.int64([seed, seed]))[:3]) for seed in range(60)}
    assert found == set(itertools.permutations(range(3)))
    with pytest.raises(UserError, match="'backward'; expected one of left_to_right, right_to_left, random"):
        places("backward")


@pytest.mark.parametrize("order", scoring.ORDERS)
def test_rows_and_padding_do_not_matter(model, order):
    """A row alone, in a batch, in longer padding: the same; with SEP, CLS and left padding as well."""
    rng = np.random.default_rng(4)
    contexts, texts = random_rows(rng, [2, 0, 1]), random_rows(rng, [3, 6, 0])
    seeds = np.int32([5, 6, 7])
    together = score(model, contexts, texts, 9, order, seeds)
    for row in range(3):
        alone = score(model, contexts[row : row + 1], texts[row : row + 1], 7, order, seeds[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row, :7], atol=1e-5)

    ids = texts[1].numpy()
    packed = np.int32([[PAD, PAD, *ids, SEP, CLS]])
    features = {
        "input_word_ids": packed,
        "input_mask": np.int32(packed != PAD),
        "input_type_ids": np.int32([[4, 4, *[0] * 7, 2]]),
    }
    is_scored = scoring.text_tokens(features)
    places = scoring.order_ranks(is_scored, order, seeds[1:2])
    found = scoring.token_log_probabilities(model, features, is_scored, places)
    np.testing.assert_allclose(found[0, 2:8], together[1, :6], atol=1e-5)
    assert not found.numpy()[0, [0, 1, 8, 9]].any()


def test_blocks_of_any_size_give_the_same(model, monkeypatch):
    rng = np.random.default_rng(5)
    texts = random_rows(rng, [5, 8, 2])
    expected = score(model, nothing(3), texts)
    for block in (1, 5, 27):
        monkeypatch.setattr(scoring, "_BLOCK", block)
        np.testing.assert_allclose(score(model, nothing(3), texts), expected, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{"attention_type": "uni", "same_length": True}, {"uniform_when_blind": True}]
)
def test_attention_that_hides_or_leaks_is_refused(options):
    model = XLNetPretrainer(XLNetEncoder(CONFIG, **options))
    with pytest.raises(UserError, match=f"the encoder has {[*options][-1]}=True"):
        score(model, nothing(1), tf.ragged.constant([[9, 10]]))


@pytest.fixture(scope="module")
def reader(small_tokenizer):
    config = XLNetConfig(small_tokenizer.vocab_size, n_layer=1, d_model=16, n_head=2, d_head=6, d_inner=20)
    model = XLNetPretrainer(XLNetEncoder(config, initializer_range=0.4))
    model.build()
    return model


TEXTS = ["bane tor", "", "kalsu remi do 12, nekal", "  ", "mi", "bane kal tor su"]


def test_scores_lists_of_texts(reader, small_tokenizer):
    contexts = TEXTS[::-1]
    ids, before = ([small_tokenizer.encode(text) for text in texts] for texts in (TEXTS, contexts))
    orders = [np.random.default_rng(0).permutation(len(text)).tolist() for text in ids]
    engine = LanguageModelGraphs(reader)
    found = score_texts(engine, small_tokenizer, TEXTS, contexts, order=orders, batch_size=4)
    for row, scored in enumerate(found):
        assert scored.order.tolist() == orders[row]
        assert scored.pieces == [small_tokenizer.id_to_piece(piece) for piece in ids[row]]
        positions = len(before[row]) + scored.order
        expected = chain(reader, np.array([*before[row], *ids[row]], int), positions.tolist())
        np.testing.assert_allclose(scored.log_probabilities, expected[len(before[row]) :], atol=5e-5)
        assert scored.total == pytest.approx(expected.sum(), abs=1e-3)

    drawn = score_texts(engine, small_tokenizer, TEXTS, order="random", seed=1)
    orders = [scored.order for scored in drawn]
    assert any(np.diff(order).max(initial=0) > 0 > np.diff(order).min(initial=0) for order in orders)
    same = score_texts(engine, small_tokenizer, TEXTS, order=orders, batch_size=1)
    np.testing.assert_allclose([s.total for s in same], [s.total for s in drawn], atol=1e-4)

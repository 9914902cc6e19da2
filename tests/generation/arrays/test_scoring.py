"""Contexts and orders in numpy are those of the graphs."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.generation import scoring as graph
from xlnet_tf.generation.arrays import scoring

TEXTS = ["ba ne tor mi kal", "", "su"]
CONTEXTS = ["ne", "ren do", ""]


class Recorder:
    longest = 100

    def score(self, ids, mask, is_scored, ranks):
        self.asked = ids, mask, is_scored, np.where(is_scored, ranks, 0)
        return np.zeros(ids.shape, np.float32)


@pytest.mark.parametrize("order", [*scoring.ORDERS, "permutation"])
def test_what_is_scored_is_that_of_the_graph(small_tokenizer, order):
    ids = [small_tokenizer.encode(text) for text in TEXTS]
    permutations = [np.random.default_rng(0).permutation(len(text)).tolist() for text in ids]
    engine = Recorder()
    asked = permutations if order == "permutation" else order
    found = scoring.score_texts(engine, small_tokenizer, TEXTS, CONTEXTS, order=asked, seed=-5)
    before = [small_tokenizer.encode(text) for text in CONTEXTS]
    rows = sorted(range(3), key=lambda row: len(before[row]) + len(ids[row]))
    contexts, texts = (tf.ragged.constant([each[row] for row in rows], tf.int32) for each in (before, ids))
    features, is_scored = graph.join_contexts(contexts, texts, max(map(len, ids)) + len(before[0]))
    if order == "permutation":
        ranks = np.zeros(is_scored.shape, np.int32)
        ranks[is_scored.numpy()] = np.concatenate([np.argsort(permutations[row]) for row in rows])
    else:
        ranks = graph.order_ranks(is_scored, order, tf.fill([3], tf.constant(-5, tf.int64)))
    expected = *features.values(), is_scored, tf.where(is_scored, ranks, 0)
    for one, other in zip(engine.asked, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    if order == "permutation":
        assert [score.order.tolist() for score in found] == permutations

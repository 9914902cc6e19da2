"""Ranking metrics: against values worked out by hand, against scikit-learn, and their properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from xlnet_tf.tasks.ranking_metrics import Judged, ranking, ranking_metrics


def judged(relevance, missing=()):
    """A query whose candidates are ranked in the order given."""
    return Judged(-np.arange(len(relevance), dtype=float), np.array(relevance), missing)


def test_two_queries_by_hand():
    metrics = ranking_metrics([judged([0, 1, 0, 1]), judged([1, 0])])
    assert metrics["map"] == pytest.approx(((1 / 2 + 2 / 4) / 2 + 1) / 2)
    assert metrics["mrr"] == pytest.approx((1 / 2 + 1) / 2)
    gained = 1 / math.log2(3) + 1 / math.log2(5)
    assert metrics["ndcg_at_10"] == pytest.approx((gained / (1 + 1 / math.log2(3)) + 1) / 2)
    assert (metrics["queries"], metrics["queries_left_out"]) == (2, 0)


def test_grades_count_for_ndcg_and_from_a_threshold_for_the_rest():
    metrics = ranking_metrics([judged([1, 3, 0])], relevant_from=2)
    assert metrics["map"] == metrics["mrr"] == 1 / 2
    assert metrics["ndcg_at_10"] == pytest.approx((1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)))


def test_queries_with_nothing_relevant_are_left_out_and_counted():
    with_one = ranking_metrics([judged([0, 1])])
    with_two = ranking_metrics([judged([0, 1]), judged([0, 0])])
    assert with_two == {**with_one, "queries_left_out": 1}
    nothing = ranking_metrics([judged([0, 0])])
    assert math.isnan(nothing["map"]) and nothing["queries"] == 0


def test_relevant_passages_that_are_no_candidates_are_missed():
    metrics = ranking_metrics([judged([1, 0], missing=[1]), judged([0, 0], missing=[2])])
    assert metrics["map"] == pytest.approx((1 / 2 + 0) / 2)
    assert metrics["mrr"] == pytest.approx((1 + 0) / 2)
    assert metrics["ndcg_at_10"] == pytest.approx((1 / (1 + 1 / math.log2(3)) + 0) / 2)


def test_only_ten_ranks_count_for_the_metrics_at_10():
    metrics = ranking_metrics([judged([0] * 10 + [1])])
    assert metrics["mrr"] == pytest.approx(1 / 11)
    assert metrics["mrr_at_10"] == metrics["ndcg_at_10"] == 0


def test_equal_scores_keep_the_order_of_the_input():
    assert list(ranking(np.array([0.5, 1.0, 0.5, 1.0]))) == [1, 3, 0, 2]


# Distinct scores: scikit-learn averages over ties.
queries = st.integers(2, 30).flatmap(
    lambda count: st.tuples(
        st.permutations(range(count)),
        st.lists(st.integers(0, 3), min_size=count, max_size=count).filter(any),
    )
)


@given(queries)
def test_one_query_equals_scikit_learn(query):
    scores, relevance = np.array(query[0], float), np.array(query[1])
    metrics = ranking_metrics([Judged(scores, relevance)])
    assert metrics["map"] == pytest.approx(average_precision_score(relevance > 0, scores))
    assert metrics["ndcg_at_10"] == pytest.approx(ndcg_score([relevance], [scores], k=10))
    assert metrics["mrr"] == pytest.approx(1 / (1 + np.sum(scores > scores[relevance > 0].max())))

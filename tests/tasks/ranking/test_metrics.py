"""Ranking metrics: against values calculated manually, against scikit-learn, and their properties."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from xlnet_tf.tasks.ranking import metrics as ranking_metrics_lib
from xlnet_tf.tasks.ranking.metrics import Judged, mean_metrics, query_metrics, ranking


def judged(relevance, missing=()):
    """A query whose candidates are ranked in the order given."""
    return Judged(-np.arange(len(relevance), dtype=float), np.array(relevance), missing)


def test_queries_with_nothing_relevant_are_left_out_and_counted():
    with_one = mean_metrics(query_metrics([judged([0, 1])]))
    with_two = mean_metrics(query_metrics([judged([0, 1]), judged([0, 0])]))
    assert with_two == {**with_one, "queries_left_out": 1}
    nothing = mean_metrics(query_metrics([judged([0, 0])]))
    assert math.isnan(nothing["map"]) and nothing["queries"] == 0


def test_equal_scores_keep_the_order_of_the_input():
    assert list(ranking(np.array([0.5, 1.0, 0.5, 1.0]))) == [1, 3, 0, 2]


queries = st.integers(2, 30).flatmap(
    lambda count: st.tuples(
        st.permutations(range(count)),
        st.lists(st.integers(0, 3), min_size=count, max_size=count).filter(any),
    )
)


@given(queries)
def test_one_query_equals_scikit_learn(query):
    scores, relevance = np.array(query[0], float), np.array(query[1])
    metrics = mean_metrics(query_metrics([Judged(scores, relevance)]))
    assert metrics["map"] == pytest.approx(average_precision_score(relevance > 0, scores))
    assert metrics["ndcg_at_10"] == pytest.approx(ndcg_score([relevance], [scores], k=10))
    assert metrics["mrr"] == pytest.approx(1 / (1 + np.sum(scores > scores[relevance > 0].max())))


def by_all_orders(scores, relevance, missing, relevant_from):
    """The metrics, each averaged over every order of the candidates that agrees with the scores."""
    found = []
    for order in itertools.permutations(range(len(scores))):
        if any(scores[left] < scores[right] for left, right in itertools.pairwise(order)):
            continue
        grades = [relevance[index] for index in order]
        ranks = [rank for rank, grade in enumerate(grades, 1) if grade >= relevant_from]
        first = 1 / ranks[0] if ranks else 0
        missed = sum(grade >= relevant_from for grade in missing)
        precision = sum(count / rank for count, rank in enumerate(ranks, 1)) / (len(ranks) + missed)
        gain = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades[:3], 1))
        best = sorted([*relevance, *missing], reverse=True)[:3]
        ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, 1))
        found.append((precision, first, first if ranks and ranks[0] <= 3 else 0, gain / ideal))
    return np.mean(found, axis=0)


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=6),
    missing=st.lists(st.integers(1, 3), max_size=2),
    relevant_from=st.integers(1, 2),
)
def test_ties_average_over_all_orders(rows, missing, relevant_from):
    scores, relevance = zip(*rows, strict=True)
    assume(any(grade >= relevant_from for grade in (*relevance, *missing)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking_metrics_lib, "CUT", 3)
        query = Judged(np.array(scores, float), np.array(relevance), missing)
        found = mean_metrics(query_metrics([query], relevant_from))
    expected = by_all_orders(scores, relevance, missing, relevant_from)
    assert [found[name] for name in ("map", "mrr", "mrr_at_3", "ndcg_at_3")] == pytest.approx(list(expected))

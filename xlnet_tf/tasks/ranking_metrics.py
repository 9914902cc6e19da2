"""How good a ranking is: MAP, MRR and nDCG over queries.

Conventions, which differ between tools:
    Queries without any known relevant passage say nothing about a ranking: they are left out, as WikiQA does,
        and counted.
    A relevant passage that is not among a query's candidates is found at no rank: it makes MAP and nDCG
        smaller, as in trec_eval.
    Equal scores: the candidate that comes first in the input ranks first.
    nDCG takes the relevance itself as the gain, as trec_eval and scikit-learn do, not 2 ** relevance - 1.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

CUT = 10


class Judged(NamedTuple):
    """The candidates of one query.

    Attributes:
        scores: float [n], the model's; higher is better.
        relevance: int [n], 0 for irrelevant, larger for more relevant.
        missing: relevance of passages that are known to be relevant, but are no candidates.
    """

    scores: np.ndarray
    relevance: np.ndarray
    missing: Sequence[int] = ()


def ranking(scores: np.ndarray) -> np.ndarray:
    """Returns the places [n] of all candidates, best first; equal scores stay in their order."""
    return np.argsort(-np.asarray(scores, np.float64), kind="stable")


def average_precision(relevant: np.ndarray, missing: int = 0) -> float:
    """Returns the mean, over all relevant passages, of the precision at their ranks.

    Args:
        relevant: bool [n], best-ranked first.
        missing: relevant passages that were not ranked; their precision is 0.
    """
    ranks = np.flatnonzero(relevant) + 1
    return float(np.sum(np.arange(1, len(ranks) + 1) / ranks) / (len(ranks) + missing))


def reciprocal_rank(relevant: np.ndarray) -> float:
    """Returns one over the rank of the first relevant passage; 0 without one.

    Args:
        relevant: bool [n], best-ranked first.
    """
    ranks = np.flatnonzero(relevant) + 1
    return 1.0 / float(ranks[0]) if len(ranks) else 0.0


def ndcg(relevance: np.ndarray, missing: Sequence[int] = (), cut: int = CUT) -> float:
    """Returns the discounted gain of the first `cut` ranks over that of the best possible ranking.

    Args:
        relevance: int [n], best-ranked first.
        missing: relevance of passages that were not ranked.
        cut: ranks that count.
    """
    best = np.sort(np.concatenate([relevance, np.asarray(missing, np.int64)]))[::-1]
    return _discounted_gain(relevance[:cut]) / _discounted_gain(best[:cut])


def ranking_metrics(queries: Iterable[Judged], relevant_from: int = 1) -> dict[str, float]:
    """Averages the metrics over queries.

    Args:
        queries: the candidates of each query.
        relevant_from: smallest relevance that counts as relevant for MAP and MRR; nDCG takes all grades.

    Returns:
        map, mrr, mrr_at_10, ndcg_at_10: between 0 and 1; NaN where no query has a relevant passage.
        queries, queries_left_out: how many they are the means of, and how many have nothing relevant.
    """
    rows, left_out = [], 0
    for query in queries:
        missing = [grade for grade in query.missing if grade >= relevant_from]
        relevance = np.asarray(query.relevance)[ranking(query.scores)]
        relevant = relevance >= relevant_from
        if not relevant.any() and not missing:
            left_out += 1
            continue
        rows.append(
            (
                average_precision(relevant, len(missing)),
                reciprocal_rank(relevant),
                reciprocal_rank(relevant[:CUT]),
                ndcg(relevance, query.missing),
            )
        )
    means = np.mean(rows, axis=0) if rows else [float("nan")] * 4
    names = ("map", "mrr", f"mrr_at_{CUT}", f"ndcg_at_{CUT}")
    return {
        **{name: float(mean) for name, mean in zip(names, means, strict=True)},
        "queries": len(rows),
        "queries_left_out": left_out,
    }


def _discounted_gain(relevance: np.ndarray) -> float:
    return float(np.sum(relevance / np.log2(np.arange(2, len(relevance) + 2))))

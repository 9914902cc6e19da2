"""How good a ranking is: MAP, MRR and nDCG over queries.

Conventions, which differ between tools:
    Queries without any known relevant passage say nothing: they are left out, as WikiQA does, and counted.
    A relevant passage that is no candidate is found at no rank: it lowers MAP and nDCG, as in trec_eval.
    Equal scores: each metric is its mean over all orders of the candidates that share a score, in closed
        form. A model that scores all candidates alike would else rank as well as its input is ordered.
    nDCG takes the relevance itself as the gain, as trec_eval and scikit-learn do, not 2 ** relevance - 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

CUT = 10


class Judged(NamedTuple):
    """The candidates of one query."""

    scores: np.ndarray  # float [n]; higher is better
    relevance: np.ndarray  # int [n], 0 for irrelevant, larger for more relevant
    missing: Sequence[int] = ()  # relevance of relevant passages that are not candidates


class _Tie(NamedTuple):
    """Candidates of one score: how many are before, are they, and are relevant; their mean relevance."""

    before: int
    count: int
    relevant: int
    gain: float


def ranking(scores: np.ndarray) -> np.ndarray:
    """Returns the positions [n] of all candidates, best first; equal scores stay in their order."""
    return np.argsort(-np.asarray(scores, np.float64), kind="stable")


def _ties(scores: np.ndarray, relevance: np.ndarray, relevant_from: int = 1) -> list[_Tie]:
    """Groups the candidates of a query by score, best first."""
    _, groups = np.unique(-np.asarray(scores, np.float64), return_inverse=True)
    counts = np.bincount(groups)
    relevant = np.bincount(groups, weights=np.asarray(relevance) >= relevant_from).astype(int)
    gains = np.bincount(groups, weights=relevance) / counts
    before = np.cumsum(counts) - counts
    return [_Tie(*row) for row in zip(before, counts, relevant, gains, strict=True)]


def average_precision(ties: Sequence[_Tie], missing: int = 0) -> float:
    """Returns the mean precision at the ranks of all relevant passages; 0 for `missing`, unranked ones."""
    total, relevant_before = 0.0, 0
    for tie in ties:
        if tie.relevant:
            earlier = np.arange(tie.count)  # of the same score, before each rank of the group
            # At a rank, r/n of the orders have a relevant passage; (r-1)/(n-1) of those before it are, too.
            share = (tie.relevant - 1) / max(1, tie.count - 1)
            precisions = (relevant_before + 1 + earlier * share) / (tie.before + 1 + earlier)
            total += float(np.sum(precisions)) * tie.relevant / tie.count
        relevant_before += tie.relevant
    return total / (relevant_before + missing)


def reciprocal_rank(ties: Sequence[_Tie], cut: int | None = None) -> float:
    """Returns 1 / the rank of the first relevant passage; 0 without one in the first `cut` ranks."""
    tie = next((tie for tie in ties if tie.relevant), None)
    if tie is None:
        return 0.0
    total, none_before = 0.0, 1.0  # the share of orders without a relevant passage before a rank
    for earlier in range(tie.count - tie.relevant + 1):
        rank = tie.before + earlier + 1
        if cut is not None and rank > cut:
            break
        first_here = tie.relevant / (tie.count - earlier)
        total += none_before * first_here / rank
        none_before *= 1 - first_here
    return float(total)


def ndcg(ties: Sequence[_Tie], relevance: Sequence[int], missing: Sequence[int], cut: int) -> float:
    """Returns the gain of the first `cut` ranks over the best possible, of passages not ranked as well."""
    gains = np.concatenate([np.full(tie.count, tie.gain) for tie in ties])
    best = np.sort(np.concatenate([relevance, np.asarray(missing, np.int64)]))[::-1]
    return _discounted_gain(gains[:cut]) / _discounted_gain(best[:cut])


def query_metrics(queries: Iterable[Judged], relevant_from: int = 1) -> dict[str, np.ndarray]:
    """Computes map, mrr, mrr_at_10 and ndcg_at_10 [queries], from 0 to 1; NaN where nothing is relevant.

    Grades from relevant_from up are relevant for MAP and MRR; nDCG takes all grades.
    """
    rows = []
    for query in queries:
        missing = [grade for grade in query.missing if grade >= relevant_from]
        ties = _ties(query.scores, query.relevance, relevant_from)
        if not any(tie.relevant for tie in ties) and not missing:
            rows.append((np.nan,) * 4)
            continue
        rows.append(
            (
                average_precision(ties, len(missing)),
                reciprocal_rank(ties),
                reciprocal_rank(ties, CUT),
                ndcg(ties, query.relevance, query.missing, CUT),
            )
        )
    names = ("map", "mrr", f"mrr_at_{CUT}", f"ndcg_at_{CUT}")
    return dict(zip(names, np.array(rows).reshape(-1, 4).T, strict=True))


def mean_metrics(queries: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Averages the metrics of `query_metrics` over queries; NaN where no query has a relevant passage.

    Also returns the number of these queries, and of those left out as nothing is relevant to them.
    """
    judged = ~np.isnan(queries["map"])
    return {
        **{name: float(np.mean(v[judged])) if judged.any() else np.nan for name, v in queries.items()},
        "queries": int(judged.sum()),
        "queries_left_out": int((~judged).sum()),
    }


def _discounted_gain(relevance: np.ndarray) -> float:
    return float(np.sum(relevance / np.log2(np.arange(2, len(relevance) + 2))))

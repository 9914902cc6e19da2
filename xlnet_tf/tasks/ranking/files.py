"""The candidates of each query, ranked: gathered from records, and written for people and trec_eval."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath

from xlnet_tf import files
from xlnet_tf.tasks.ranking.metrics import Judged, ranking
from xlnet_tf.tasks.scoring import Mistake

RUN_FILE, JSONL_FILE = "run.trec", "predictions.jsonl"
TAG = "xlnet"  # name of the system in the run


@dataclasses.dataclass
class RankedQuery:
    """A query and its candidates by id, as (text, score, relevance), in the order of the input."""

    id: str
    text: str
    missing: list[int]  # relevance of relevant passages that are not candidates
    passages: dict[str, tuple[str, float, int]] = dataclasses.field(default_factory=dict)

    def judged(self) -> Judged:
        _, scores, relevance = zip(*self.passages.values(), strict=True)
        return Judged(np.array(scores), np.array(relevance), self.missing)

    def ranked(self) -> list[tuple[str, str, float]]:
        """Returns (id, text, score) of all candidates, best first."""
        passages = [(name, text, score) for name, (text, score, _) in self.passages.items()]
        return [passages[index] for index in ranking(np.array([score for *_, score in passages]))]


def ranked_queries(
    records: Iterable[Mapping[str, Any]], scores: np.ndarray, relevance: np.ndarray
) -> list[RankedQuery]:
    """Regroups records, lines of examples.jsonl with scores [records, K], into queries in their order.

    A passage that several records of a query have, as in training sets, counts once.
    """
    queries: dict[str, RankedQuery] = {}
    for record, record_scores, grades in zip(records, scores, relevance, strict=True):
        name = record["query_id"]
        query = queries.setdefault(name, RankedQuery(name, record["query"], record["missing"]))
        for passage, score, grade in zip(record["passages"], record_scores, grades):  # empty slots come last
            query.passages.setdefault(passage["id"], (passage["text"], float(score), int(grade)))
    return list(queries.values())


def write_files(queries: Iterable[RankedQuery], folder: epath.PathLike) -> list[str]:
    """Writes run.trec and predictions.jsonl, best candidate first.

    The first has lines of query-id, Q0, passage-id, rank, score and tag, as trec_eval reads them; white space
    in ids becomes an underscore. The second has query_id, query and id, text and score of its passages.
    """
    folder = files.make_folder(folder)
    with files.replacing(folder / RUN_FILE) as run, files.replacing(folder / JSONL_FILE) as jsonl:
        for query in queries:
            ranked = query.ranked()
            for rank, (name, _, score) in enumerate(ranked, 1):
                run.write(f"{_word(query.id)} Q0 {_word(name)} {rank} {score:.9g} {TAG}\n")
            line = {
                "query_id": query.id,
                "query": query.text,
                "passages": [{"id": name, "text": text, "score": score} for name, text, score in ranked],
            }
            jsonl.write(json.dumps(line, ensure_ascii=False) + "\n")
    return [str(folder / RUN_FILE), str(folder / JSONL_FILE)]


def mistakes(queries: Iterable[RankedQuery], relevant_from: int) -> Iterator[Mistake]:
    """Yields queries whose best candidate is not relevant, although another one is."""
    for query in queries:
        relevance = {name: grade for name, (_, _, grade) in query.passages.items()}
        ranked = query.ranked()
        relevant = [text for name, text, _ in ranked if relevance[name] >= relevant_from]
        if relevant and relevance[ranked[0][0]] < relevant_from:
            yield Mistake(query.text, relevant[0], ranked[0][1])


def _word(name: str) -> str:
    return re.sub(r"\s", "_", name)

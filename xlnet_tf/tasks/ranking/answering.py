"""The order of passages or replies for a query, without TensorFlow."""

from typing import Any

import numpy as np

from xlnet_tf.serving.answers.candidates import CandidateAnswers, CandidatesAnswering
from xlnet_tf.serving.answers.options import check_room


class RankingAnswers(CandidateAnswers):
    """Scores of the candidates for a query."""

    LENGTHS = {"max_query_len": 32}
    OF_EXAMPLES = ("max_query_len",)

    def __init__(self, *served: Any, max_query_len: int, **options):
        super().__init__(*served, **options)
        check_room("max_query_len", max_query_len, self.seq_len)
        self.max_query_len = max_query_len

    def example_rows(self):
        return {
            "query": "When did the ship leave?",
            "candidates": ["It left at dawn.", "It is a fine ship.", "The harbour is old.", "Nobody knows."],
        }


class RankingAnswering(RankingAnswers, CandidatesAnswering):
    """See RankingModule, whose options and answers it has."""

    def output_kinds(self):
        return {"scores": (np.float32, -1), "order": (np.int32, -1)}

    def serve(self, query, candidates):
        queries = [ids[: self.max_query_len] for ids in self.encode(query)]
        passages = iter(self.encode([text for row in candidates for text in row]))
        rows = [
            [(ids, next(passages)[: self.seq_len - 3 - len(ids)]) for _ in row]
            for ids, row in zip(queries, candidates)
        ]
        scores, there = self.logits_of(rows)
        order = np.argsort(-scores, axis=-1, kind="stable").astype(np.int32)
        return {"scores": scores, "order": np.where(there, order, np.int32(-1))}  # the others come last

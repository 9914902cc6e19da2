"""Models that score several texts of a row, each read with another text."""

from collections.abc import Sequence

import numpy as np

from xlnet_tf.serving.answers.answering import Answering, Ids, TextAnswers
from xlnet_tf.serving.answers.signatures import LOWEST


class CandidateAnswers(TextAnswers):
    @staticmethod
    def without_padding(row, answer):
        [candidates] = (value for value in row.values() if not isinstance(value, str))
        lists = {name: value for name, value in answer.items() if isinstance(value, list)}
        return {**answer, **{name: value[: len(candidates)] for name, value in lists.items()}}


class CandidatesAnswering(CandidateAnswers, Answering):
    """Base of models whose graph gives logits [N], one for each candidate."""

    def logits_of(self, rows: Sequence[Sequence[tuple[Ids, Ids]]]) -> tuple[np.ndarray, np.ndarray]:
        """Scores the packed candidates of each row.

        Returns logits [B, C] float32, the lowest where there is no candidate, and which there are, bool.
        """
        flat = [pair for row in rows for pair in row]
        counts = np.array([*map(len, rows)])
        there = np.arange(max(counts, default=0)) < counts[:, None]
        logits = np.full(there.shape, LOWEST, np.float32)
        if flat:
            logits[there] = self.graph(self.pack(flat))["logits"]
        return logits, there

"""Converts a span model's outputs for windows to answers. No TensorFlow."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.passages import Passage
from xlnet_tf.text.windows import Window, best_windows

N_BEST = 5
MAX_ANSWER_LEN = 64  # tokens
UNDECIDED = 0.0  # the no-answer logit at which both are as likely


class Question(NamedTuple):
    """A question and its windows, parts of the passage, in consecutive records from `record` on."""

    id: str
    answers: list[str] | None  # empty if the question has none; None if they are not known
    passage: Passage
    windows: list[Window]
    record: int


class Candidate(NamedTuple):
    """A possible answer, which begins at the character `begin`."""

    text: str
    begin: int
    start_log_prob: float  # of its first token in its window
    end_log_prob: float  # of its last token given the first


class Prediction(NamedTuple):
    """What the model says about a question: candidates of different texts, best first, and "no answer"."""

    question: Question
    candidates: list[Candidate]
    no_answer_logit: float

    def answer(self, threshold: float | None) -> str:
        """Returns the best candidate; "" if there is none or the no-answer logit is above the threshold."""
        refused = threshold is not None and self.no_answer_logit > threshold
        return "" if refused or not self.candidates else self.candidates[0].text


def read_questions(examples: ExampleSet) -> Iterator[Question]:
    """Yields the questions of a set, in the order of its records."""
    passages = Passage.read_all(examples.folder)
    for question_id, rows in itertools.groupby(enumerate(examples.sidecar()), lambda row: row[1]["id"]):
        records, lines = zip(*rows)
        windows = [Window(line["first"], line["length"]) for line in lines]
        yield Question(question_id, lines[0]["answers"], passages[lines[0]["passage"]], windows, records[0])


def predict(
    questions: Sequence[Question],
    beams: Mapping[str, np.ndarray],
    n_best: int = N_BEST,
    max_answer_len: int = MAX_ANSWER_LEN,
) -> list[Prediction]:
    """Chooses each question's answers from the beams of all its windows.

    An answer counts in the one window that shows its first token best, ends where it begins or later, within
    the passage, and is not too long. Of equal texts the best is kept.

    Args:
        beams: start_top_log_probs and start_top_index [R, K], end_top_log_probs and end_top_index [R, K, E],
            and no_answer_logits [R], as models.question_answering.XLNetQuestionAnswering gives them.

    Source: run_squad.py of the original, which never takes the last token of a passage.
    """
    return [_predict(question, beams, n_best, max_answer_len) for question in questions]


def _predict(
    question: Question, beams: Mapping[str, np.ndarray], n_best: int, max_answer_len: int
) -> Prediction:
    passage, windows = question.passage, question.windows
    rows = slice(question.record, question.record + len(windows))
    end = beams["end_top_index"][rows]  # [windows, K, E]
    start = np.broadcast_to(beams["start_top_index"][rows, :, None], end.shape)
    first, length = np.array(windows).T[:, :, None, None]  # [windows, 1, 1]
    allowed = (start < length) & (end < length) & (end >= start) & (end - start < max_answer_len)
    if len(windows) > 1:
        best = best_windows(windows, len(passage.begins))
        allowed &= best[np.where(allowed, first + start, 0)] == np.arange(len(windows))[:, None, None]
    start_log_probs = np.broadcast_to(beams["start_top_log_probs"][rows, :, None], end.shape)
    end_log_probs = beams["end_top_log_probs"][rows]

    candidates: dict[str, Candidate] = {}
    indices = np.argwhere(allowed)
    for index in indices[np.argsort(-(start_log_probs + end_log_probs)[allowed], kind="stable")]:
        index = tuple(index)
        offset = windows[index[0]].first
        begin = passage.begins[offset + start[index]]
        text = passage.text[begin : passage.ends[offset + end[index]]]
        if text and text not in candidates:
            log_probs = float(start_log_probs[index]), float(end_log_probs[index])
            candidates[text] = Candidate(text, begin, *log_probs)
        if len(candidates) == n_best:
            break
    return Prediction(question, list(candidates.values()), float(beams["no_answer_logits"][rows].min()))

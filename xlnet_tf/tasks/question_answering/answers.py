"""From what a span model says about windows to answers: texts, scores and files. No TensorFlow."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0

from xlnet_tf import files
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.passages import Passage
from xlnet_tf.tasks.metrics.thresholds import threshold_between
from xlnet_tf.text.windows import Window, best_windows

N_BEST = 5
MAX_ANSWER_LEN = 64  # tokens
UNDECIDED = 0.0  # the no-answer logit at which both are as likely


class Question(NamedTuple):
    """A question and its windows.

    Attributes:
        id: of the question.
        answers: the texts that are right; empty if it has no answer, None if they are not known.
        passage: that it is about.
        windows: parts of the passage.
        record: number of the first window's record; those of the others follow.
    """

    id: str
    answers: list[str] | None
    passage: Passage
    windows: list[Window]
    record: int


class Candidate(NamedTuple):
    """A possible answer.

    Attributes:
        text: as it stands in the passage.
        begin: position of its first character.
        start_log_prob, end_log_prob: of its first token in its window, and of its last one given the first.
    """

    text: str
    begin: int
    start_log_prob: float
    end_log_prob: float


class Prediction(NamedTuple):
    """What the model says about a question.

    Attributes:
        question: what was asked.
        candidates: answers of different texts, best first; may be empty.
        no_answer_logit: the lowest of its windows; the higher, the less likely there is an answer.
    """

    question: Question
    candidates: list[Candidate]
    no_answer_logit: float

    def answer(self, threshold: float | None) -> str:
        """Returns the best candidate; nothing if there is none or the logit is above the threshold."""
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
        questions: their records are rows of the beams.
        beams: start_top_log_probs and start_top_index [R, K], end_top_log_probs and end_top_index [R, K, E],
            and no_answer_logits [R], as models.question_answering.XLNetQuestionAnswering gives them.
        n_best: most candidates of a question.
        max_answer_len: most tokens of an answer.

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


def question_scores(predictions: Sequence[Prediction], unanswerable: bool) -> dict[str, np.ndarray]:
    """Scores each question by the official metrics, all in percent.

    Questions whose answers are not known are left out; so are, in 1.1, those without one.

    Args:
        predictions: of questions, some with known answers.
        unanswerable: whether a question may have no answer (SQuAD 2.0).

    Returns:
        exact, f1: [questions], of the best candidate. For 2.0 also no_answer_logit, and has_answer, bool.
    """
    known = [p for p in predictions if p.question.answers or (unanswerable and p.question.answers == [])]
    score_one = score_v2 if unanswerable else score_v1
    scores = [score_one(_dataset([p]), {p.question.id: p.answer(None)}) for p in known]
    units = {name: np.array([each[name] for each in scores], float) for name in ("exact", "f1")}
    if unanswerable:
        units["no_answer_logit"] = np.array([p.no_answer_logit for p in known], float)
        units["has_answer"] = np.array([bool(p.question.answers) for p in known], bool)
    return units


def score(
    questions: Mapping[str, np.ndarray], threshold: float | np.ndarray | None = None, precision: float = 0.0
) -> dict[str, float]:
    """Scores questions, all in percent.

    Args:
        questions: as `question_scores` gives them.
        threshold: the no-answer logit above which there is none, of all questions or of each, [questions].
            None: the precise one if there is a precision, else the best one for F1.
        precision: what the answers that are given must reach; see `precise_threshold`. 0: nothing.

    Returns:
        exact, f1 and best_f1, the highest that a threshold gives (in 1.1, which has none, f1). For 2.0 also
        best_exact, the thresholds of both (best_exact_threshold, best_f1_threshold), and, at the given
        threshold, the scores of questions with an answer and without: has_answer_exact, has_answer_f1,
        no_answer_exact. With a precision also precise_threshold, precise_precision and precise_answered.
    """
    if "has_answer" not in questions:
        exact, f1 = (float(np.mean(questions[name])) for name in ("exact", "f1"))
        return {"exact": exact, "f1": f1, "best_f1": f1}
    logits, has_answer = questions["no_answer_logit"], questions["has_answer"]
    refused = np.where(has_answer, 0.0, 100.0)
    best = {}
    for name in ("f1", "exact"):
        found = best_threshold(questions[name], refused, logits)
        best[f"best_{name}"], best[f"best_{name}_threshold"] = found
    precise = {}
    if precision:
        found = precise_threshold(questions["exact"] / 100 * has_answer, logits, precision)
        precise = {f"precise_{name}": value for name, value in found._asdict().items()}
    if threshold is None:  # as the run will answer
        threshold = precise["precise_threshold"] if precise else best["best_f1_threshold"]
    given = {name: np.where(logits > threshold, refused, questions[name]) for name in ("exact", "f1")}
    scores = {name: float(np.mean(values)) for name, values in given.items()}
    for name, rows in (("has_answer", has_answer), ("no_answer", ~has_answer)):
        if rows.any():
            scores |= {f"{name}_{metric}": float(np.mean(values[rows])) for metric, values in given.items()}
    scores.pop("no_answer_f1", None)  # the same as no_answer_exact
    return {**scores, **best, **precise}


class PreciseThreshold(NamedTuple):
    """From which no-answer logit on to refuse, so that the answers given are right often enough.

    Attributes:
        threshold: the logit.
        precision: the share of the given answers that are exactly right, from 0 to 1.
        answered: the share of all questions that get one.
    """

    threshold: float
    precision: float
    answered: float


def precise_threshold(right: np.ndarray, logits: np.ndarray, precision: float) -> PreciseThreshold:
    """Finds the threshold with which most questions are answered while enough of the answers are right.

    Args:
        right: [N], 1 where the best candidate is exactly right.
        logits: [N] no-answer logits.
        precision: the share that must be right. Out of reach, the threshold with the highest share counts.
    """
    order = np.argsort(logits, kind="stable")
    answered = np.arange(1, len(order) + 1)
    shares = np.cumsum(right[order]) / answered
    ends = np.append(logits[order][:-1] != logits[order][1:], True)  # equal logits go together
    reached = np.flatnonzero(ends & (shares >= precision))
    best = reached[-1] if len(reached) else np.flatnonzero(ends)[np.argmax(shares[ends])]
    threshold = _threshold_after(logits[order], best)
    return PreciseThreshold(threshold, float(shares[best]), float(answered[best] / len(order)))


def best_threshold(answered: np.ndarray, refused: np.ndarray, logits: np.ndarray) -> tuple[float, float]:
    """Finds the logit above which it is best to say that there is no answer.

    Args:
        answered: [N] what each question scores with its best candidate.
        refused: [N] what it scores with none.
        logits: [N] no-answer logits.

    Returns:
        The mean score, and the threshold: SQuAD's own scorer has the logit of the last question that is
        answered, or one less than the lowest if none is; here it is between that and the next one's.
    """
    order = np.argsort(logits, kind="stable")
    sums = refused.sum() + np.concatenate([[0.0], np.cumsum((answered - refused)[order])])
    candidates = np.concatenate([[logits.min() - 1], logits[order]])
    possible = np.append(candidates[:-1] != candidates[1:], True)  # equal logits go together
    best = np.flatnonzero(possible)[np.argmax(sums[possible])]
    return float(sums[best] / len(logits)), _threshold_after(candidates, best)


def _threshold_after(logits: np.ndarray, last: int) -> float:
    """Returns the threshold that answers the questions up to the number `last`, given their rising logits."""
    following = logits[last + 1] if last + 1 < len(logits) else logits[last] + 1
    return threshold_between(logits[last], following)


def share_without_answer(examples: ExampleSet) -> float:
    """Returns how many questions of a set have no answer, in percent."""
    questions = list(read_questions(examples))
    return 100 * sum(question.answers == [] for question in questions) / len(questions)


def score_v1(dataset: list[dict], answers: Mapping[str, str]) -> dict[str, float]:
    """Scores answers as SQuAD 1.1 does.

    Args:
        dataset: the "data" of SQuAD's json.
        answers: question id -> text.
    """
    scores = squad_evaluate_v1_1.evaluate(dataset, answers)
    return {"exact": 100 * scores["exact_match"], "f1": 100 * scores["final_f1"]}


def score_v2(dataset: list[dict], answers: Mapping[str, str]) -> dict[str, float]:
    """Scores answers as SQuAD 2.0 does; an empty answer says that there is none. See `score_v1`."""
    scores = squad_evaluate_v2_0.evaluate(dataset, answers)
    return {name: scores[name] for name in ("exact", "f1")}


def _dataset(predictions: Sequence[Prediction]) -> list[dict]:
    """Returns the questions as the official scorers read them."""
    questions = [
        {"id": p.question.id, "answers": [{"text": text} for text in p.question.answers]} for p in predictions
    ]
    return [{"paragraphs": [{"qas": questions}]}]


def write_files(
    predictions: Sequence[Prediction], folder: epath.PathLike, threshold: float | None
) -> list[str]:
    """Writes what SQuAD's scorers and people read.

    predictions.json: id -> answer. nbest_predictions.json: id -> candidates with text, probability (among
    them), start_log_prob, end_log_prob and begin, the position in the passage. With a threshold also
    null_odds.json: id -> no-answer logit; where that is above the threshold, the answer is empty.

    Args:
        predictions: of all questions.
        folder: for the files.
        threshold: None if every question has an answer (SQuAD 1.1).

    Returns:
        The paths.
    """
    contents = {
        "predictions.json": {p.question.id: p.answer(threshold) for p in predictions},
        "nbest_predictions.json": {p.question.id: _n_best(p.candidates) for p in predictions},
    }
    if threshold is not None:
        contents["null_odds.json"] = {p.question.id: p.no_answer_logit for p in predictions}
    folder = files.make_folder(folder)
    for name, values in contents.items():
        files.write(folder / name, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    return [str(folder / name) for name in contents]


def _n_best(candidates: Sequence[Candidate]) -> list[dict]:
    scores = np.array([candidate.start_log_prob + candidate.end_log_prob for candidate in candidates])
    odds = np.exp(scores - scores.max(initial=-np.inf))
    return [
        {**candidate._asdict(), "probability": float(probability)}
        for candidate, probability in zip(candidates, odds / odds.sum())
    ]

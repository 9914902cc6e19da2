"""SQuAD's metrics, and the thresholds above which an answer is refused. No TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0

from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks.metrics.thresholds import threshold_between
from xlnet_tf.tasks.question_answering.answers import Prediction, read_questions


def question_scores(predictions: Sequence[Prediction], unanswerable: bool) -> dict[str, np.ndarray]:
    """Scores each question by the official metrics, all in percent.

    Questions without known answers are left out; so are, in 1.1 (not `unanswerable`), those without one.
    Returns exact and f1 [questions] of the best candidate; for 2.0 also no_answer_logit and has_answer, bool.
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
    thresholded = {name: np.where(logits > threshold, refused, questions[name]) for name in ("exact", "f1")}
    scores = {name: float(np.mean(values)) for name, values in thresholded.items()}
    for name, rows in (("has_answer", has_answer), ("no_answer", ~has_answer)):
        if rows.any():
            scores |= {
                f"{name}_{metric}": float(np.mean(values[rows])) for metric, values in thresholded.items()
            }
    scores.pop("no_answer_f1", None)  # the same as no_answer_exact
    return {**scores, **best, **precise}


class PreciseThreshold(NamedTuple):
    """The no-answer logit above which to refuse, so that enough of the given answers are right."""

    threshold: float
    precision: float  # share of given answers that are exactly right
    answered: float  # share of questions that are given an answer


def precise_threshold(right: np.ndarray, logits: np.ndarray, precision: float) -> PreciseThreshold:
    """Finds the threshold that answers most questions with a share `precision` of exact answers.

    If that is out of reach, it is the threshold with the highest share.
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
    """Finds the logit above which it is best to say that there is no answer; returns mean score and logit.

    SQuAD's own scorer returns the logit of the last answered question, or one less than the lowest if none
    is; here it lies between that and the next question's.
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


def is_right(prediction: Prediction, answer: str) -> bool:
    """Returns whether an answer to a question with known answers is one of them, as SQuAD 2.0 compares."""
    return score_v2(_dataset([prediction]), {prediction.question.id: answer})["exact"] == 100


def score_v1(dataset: list[dict], answers: Mapping[str, str]) -> dict[str, float]:
    """Scores answers as SQuAD 1.1 does; `dataset` is the "data" of SQuAD's json."""
    scores = squad_evaluate_v1_1.evaluate(dataset, answers)
    return {"exact": 100 * scores["exact_match"], "f1": 100 * scores["final_f1"]}


def score_v2(dataset: list[dict], answers: Mapping[str, str]) -> dict[str, float]:
    """Scores answers as SQuAD 2.0 does; an empty answer says that there is none. See `score_v1`."""
    scores = squad_evaluate_v2_0.evaluate(dataset, answers)
    return {name: scores[name] for name in ("exact", "f1")}


def _dataset(predictions: Sequence[Prediction]) -> list[dict]:
    questions = [
        {"id": p.question.id, "answers": [{"text": text} for text in p.question.answers]} for p in predictions
    ]
    return [{"paragraphs": [{"qas": questions}]}]

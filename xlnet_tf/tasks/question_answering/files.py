"""What `predict` writes for questions: answers, candidates, and no-answer logits."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from xlnet_tf import files
from xlnet_tf.tasks.question_answering.answers import Candidate, Prediction
from xlnet_tf.tasks.question_answering.metrics import is_right
from xlnet_tf.tasks.scoring import Mistake


def write_files(
    predictions: Sequence[Prediction], folder: epath.PathLike, threshold: float | None
) -> list[str]:
    """Writes what SQuAD's scorers and people read.

    predictions.json: id -> answer. nbest_predictions.json: id -> candidates with text, probability (among
    them), start_log_prob, end_log_prob and begin, the position in the passage. With a threshold also
    null_odds.json: id -> no-answer logit; where that is above the threshold, the answer is empty. The
    threshold is None if every question has an answer (SQuAD 1.1).
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


def mistakes(
    rows: Iterable[Mapping[str, Any]], predictions: Mapping[str, Prediction], threshold: float | None
) -> Iterator[Mistake]:
    """Yields questions whose answer is none of the expected ones, as SQuAD's scorers compare them.

    `rows` are the lines of a set's examples.jsonl, of one window each; for `threshold` see `write_files`.
    """
    for question in {row["id"]: row for row in rows}.values():
        answer = predictions[question["id"]].answer(threshold)
        if not is_right(predictions[question["id"]], answer):
            expected = next(iter(question["answers"]), "")
            yield Mistake(question["question"], expected or "no answer", answer or "no answer")


def _n_best(candidates: Sequence[Candidate]) -> list[dict]:
    scores = np.array([candidate.start_log_prob + candidate.end_log_prob for candidate in candidates])
    odds = np.exp(scores - scores.max(initial=-np.inf))
    return [
        {**candidate._asdict(), "probability": float(probability)}
        for candidate, probability in zip(candidates, odds / odds.sum())
    ]

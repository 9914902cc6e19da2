"""Answers from beams, and their scores: against the definition, published predictions, and true positions."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from official.nlp.tools import squad_evaluate_v2_0

from tfrecord_builders.squad.build import SquadOptions, build_squad
from xlnet_tf.records.passages import Passage
from xlnet_tf.tasks.question_answering import answers as squad_answers
from xlnet_tf.tasks.question_answering import files as squad_files
from xlnet_tf.tasks.question_answering import metrics as squad_metrics
from xlnet_tf.tasks.question_answering.answers import Candidate, Prediction, Question
from xlnet_tf.text.windows import best_windows, split_windows

WORDS = list("abcabdef")
PASSAGE = Passage(" ".join(WORDS), list(range(0, 16, 2)), list(range(1, 17, 2)))


def ask(windows, answers=None, record=0):
    return Question("q", answers, PASSAGE, windows, record)


def beams(starts, ends, start_log_probs=None, end_log_probs=None, no_answer_logits=None):
    """Beams of [windows, K] and [windows, K, E] lists."""
    starts, ends = np.array(starts), np.array(ends)
    found = {"start_top_index": starts, "end_top_index": ends}
    for name, values, shape in (
        ("start_top_log_probs", start_log_probs, starts.shape),
        ("end_top_log_probs", end_log_probs, ends.shape),
        ("no_answer_logits", no_answer_logits, starts.shape[:1]),
    ):
        found[name] = np.zeros(shape) if values is None else np.array(values, float)
    return found


def texts(prediction):
    return [candidate.text for candidate in prediction.candidates]


def test_what_counts_as_an_answer():
    question = ask(split_windows(8, 8, 8))
    found = beams(
        starts=[[1, 7, 9]],  # 9: CLS
        ends=[[[0, 1, 3], [7, 8, 9], [9, 2, 10]]],
        start_log_probs=[[-1.0, -2.0, -0.1]],
        end_log_probs=[[[-0.1, -2.0, -0.5], [-0.2, -0.1, -0.1], [-0.1, -0.1, -0.1]]],
    )
    (prediction,) = squad_answers.predict([question], found)
    assert prediction.candidates == [
        Candidate("b c a", 2, -1.0, -0.5),
        Candidate("f", 14, -2.0, -0.2),  # the last token of the passage
        Candidate("b", 2, -1.0, -2.0),
    ]
    assert texts(squad_answers.predict([question], found, n_best=1)[0]) == ["b c a"]
    assert texts(squad_answers.predict([question], found, max_answer_len=2)[0]) == ["f", "b"]


def test_no_answer_is_the_least_of_all_windows():
    windows = split_windows(8, 6, 2)
    nothing = beams([[0]] * 4, [[[0]]] * 4, no_answer_logits=[9.0, 3.0, -1.0, 9.0])
    (prediction,) = squad_answers.predict([ask(windows, record=1)], nothing)
    assert prediction.no_answer_logit == -1.0
    assert prediction.answer(None) == prediction.answer(-1.0) == "a" and prediction.answer(-1.1) == ""


def define_candidates(question, found, n_best, max_answer_len):
    """The choice of answers, one after another, as slowly as can be."""
    every, best = [], best_windows(question.windows, len(WORDS))
    for number, (first, length) in enumerate(question.windows):
        starts, ends = found["start_top_index"][number], found["end_top_index"][number]
        for k, e in itertools.product(range(ends.shape[0]), range(ends.shape[1])):
            start, end = starts[k], ends[k, e]
            if not start <= end < length or end - start + 1 > max_answer_len or best[first + start] != number:
                continue
            score = found["start_top_log_probs"][number, k] + found["end_top_log_probs"][number, k, e]
            every.append((" ".join(WORDS[first + start : first + end + 1]), score))
    every.sort(key=lambda entry: -entry[1])
    return list(dict.fromkeys(text for text, _ in every))[:n_best]


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_any_beams(room, stride, seed, n_best, max_answer_len):
    rng = np.random.default_rng(seed)
    question = ask(split_windows(len(WORDS), room, stride))
    count = len(question.windows)
    found = beams(
        rng.integers(0, 10, (count, 3)),
        rng.integers(0, 10, (count, 3, 4)),
        rng.permutation(count * 3).reshape(count, 3),
        rng.random((count, 3, 4)),
    )
    (prediction,) = squad_answers.predict([question], found, n_best, max_answer_len)
    assert texts(prediction) == define_candidates(question, found, n_best, max_answer_len)


SCORES = st.lists(
    st.tuples(st.sampled_from([0.0, 40.0, 100.0]), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=12
)


@given(SCORES)
@settings(deadline=None)
def test_the_best_threshold_is_the_best_of_all(questions):
    answered = np.array([0.0 if nothing else score for score, nothing, _ in questions])
    refused = np.array([100.0 * nothing for _, nothing, _ in questions])
    logits = np.array([float(logit) for *_, logit in questions])
    score, threshold = squad_metrics.best_threshold(answered, refused, logits)

    def mean(threshold):
        return np.where(logits > threshold, refused, answered).mean()

    assert threshold not in logits  # another route's rounding decides alike
    assert score == pytest.approx(mean(threshold))
    assert score == pytest.approx(max(mean(t) for t in np.arange(-4.5, 4)))


def test_a_precision_sets_the_threshold_of_the_scores():
    units = squad_metrics.question_scores(list(make_predictions(60)), unanswerable=True)
    scores = squad_metrics.score(units, precision=0.6)
    assert scores["precise_threshold"] != scores["best_f1_threshold"]
    assert scores == squad_metrics.score(units, scores["precise_threshold"], precision=0.6)
    best = squad_metrics.score(units, scores["best_f1_threshold"], precision=0.6)
    assert best["f1"] == pytest.approx(best["best_f1"]) and best["f1"] > scores["f1"]


def test_no_question_is_on_the_threshold():
    """An export and the run compute a question's logit with other last digits, and decide alike."""
    right, logits = np.array([1.0, 1.0, 0.0]), np.array([0.1, 0.22315134, 0.9])
    middle = (0.22315134 + 0.9) / 2
    assert squad_metrics.precise_threshold(right, logits, 0.9).threshold == pytest.approx(middle)
    assert squad_metrics.precise_threshold(right, logits, 0.5).threshold == pytest.approx(1.4)  # answers all
    assert squad_metrics.best_threshold(np.zeros(3), np.ones(3), logits) == (1, pytest.approx(-0.4))  # none


def make_predictions(count, seed=0):
    rng = np.random.default_rng(seed)
    for number in range(count):
        answers = [] if rng.random() < 0.5 else ["a b", "b c d"]
        text = str(rng.choice(["a b", "b", "x"]))
        question = Question(str(number), answers, PASSAGE, [], number)
        yield Prediction(question, [Candidate(text, 0, -1.0, -1.0)], float(rng.random()))


def test_thresholds_are_those_of_the_official_scorer():
    """Which needs values above 0, and no two alike."""
    predictions = list(make_predictions(60))
    dataset = squad_metrics._dataset(predictions)
    answers = {p.question.id: p.answer(None) for p in predictions}
    odds = {p.question.id: p.no_answer_logit for p in predictions}
    official = squad_evaluate_v2_0.evaluate(dataset, answers, odds)
    units = squad_metrics.question_scores(predictions, unanswerable=True)
    scores = squad_metrics.score(units)
    for name in ("exact", "f1"):
        assert scores[f"best_{name}"] == pytest.approx(official[f"final_{name}"])
        # Half-way from the official one, which is a question's own, to the next.
        theirs = official[f"final_{name}_thresh"]
        next_one = min(logit for logit in odds.values() if logit > theirs)
        assert scores[f"best_{name}_threshold"] == pytest.approx((theirs + next_one) / 2)
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    everything = squad_metrics.score(units, 2.0)
    assert everything["no_answer_exact"] == 0 < everything["has_answer_f1"]
    assert everything["f1"] == pytest.approx(official["f1"])


def test_questions_that_cannot_be_scored_are_left_out():
    good, bad = list(make_predictions(2, seed=3))
    good = good._replace(question=good.question._replace(answers=["x"]), candidates=[Candidate("x", 0, 0, 0)])
    for answers in (None, []):
        unknown = bad._replace(question=bad.question._replace(answers=answers))
        scores = squad_metrics.score(squad_metrics.question_scores([good, unknown], unanswerable=False))
        assert scores == {"exact": 100.0, "f1": 100.0, "best_f1": 100.0}


def test_files(tmp_path):
    predictions = list(make_predictions(3))
    two = [Candidate("a b", 0, -1.0, -0.5), Candidate("b", 2, -1.5, -1.0)]
    predictions[0] = predictions[0]._replace(candidates=two, no_answer_logit=-2.0)
    predictions[1] = predictions[1]._replace(candidates=[], no_answer_logit=-3.0)
    paths = squad_files.write_files(predictions, tmp_path / "new" / "out", threshold=-2.5)
    chosen, n_best, odds = (json.loads(Path(path).read_text()) for path in paths)
    assert chosen["0"] == chosen["1"] == "" and odds["0"] == -2.0
    assert [entry["text"] for entry in n_best["0"]] == ["a b", "b"] and n_best["1"] == []
    likelihood = np.exp([-1.5, -2.5])
    probabilities = [entry["probability"] for entry in n_best["0"]]
    np.testing.assert_allclose(probabilities, likelihood / likelihood.sum())
    paths = squad_files.write_files(predictions, tmp_path, threshold=None)
    assert [Path(path).name for path in paths] == ["predictions.json", "nbest_predictions.json"]
    assert json.loads(Path(paths[0]).read_text())["0"] == "a b"


@pytest.mark.parametrize(
    ("questions", "predictions", "score", "exact", "f1"),
    [
        ("dev-v1.1", "v1.1_BERT_ensemble", squad_metrics.score_v1, 86.206, 92.196),
        ("dev-v2.0", "v2.0_BERT_single", squad_metrics.score_v2, 78.742, 81.775),
    ],
)
def test_published_predictions_have_their_published_scores(shared, questions, predictions, score, exact, f1):
    with gzip.open(shared(f"data/squad/{questions}.from-explorer.json.gz")) as file:
        dataset = json.load(file)["data"]
    answers = json.loads(shared(f"data/squad/predictions/{predictions}.json").read_text())
    scores = score(dataset, answers)
    assert (round(scores["exact"], 3), round(scores["f1"], 3)) == (exact, f1)


def true_beams(examples):
    arrays = examples.arrays()
    without = arrays["is_impossible"] == 1
    return beams(
        arrays["answer_first"][:, None],
        arrays["answer_last"][:, None, None],
        start_log_probs=np.where(without, -30.0, 0.0)[:, None],
        no_answer_logits=np.where(without, 4.0, -4.0),
    )


def test_true_positions_score_100(shared, tmp_path):
    with gzip.open(shared("data/squad/cs224n_dev-v2.0.json.gz")) as file:
        content = json.load(file)
    for article in content["data"]:
        article["paragraphs"] = article["paragraphs"][::10]
    path = tmp_path / "part.json"
    path.write_text(json.dumps(content))
    tokenizer = str(shared("data/xlnet_cased/spiece.model"))
    options = SquadOptions(tokenizer, str(tmp_path), train=str(path), seq_len=192, stride=64)
    examples = build_squad(options)["train"]
    questions = list(squad_answers.read_questions(examples))
    assert examples.records > 1.2 * len(questions) > 200
    predictions = squad_answers.predict(questions, true_beams(examples))
    scores = squad_metrics.score(squad_metrics.question_scores(predictions, unanswerable=True))
    assert scores["exact"] > 99 and scores["f1"] > 99 and scores["no_answer_exact"] == 100
    assert squad_metrics.share_without_answer(examples) == pytest.approx(
        100 * examples.statistics["questions without an answer"] / len(questions)
    )

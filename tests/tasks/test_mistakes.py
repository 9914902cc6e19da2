"""What the models of each task answer wrongly, as a run's page shows it."""

import types

import numpy as np
import pytest

from xlnet_tf.records.passages import Passage
from xlnet_tf.tasks.classification import files as classification
from xlnet_tf.tasks.multiple_choice import files as multiple_choice
from xlnet_tf.tasks.question_answering import files as question_answering
from xlnet_tf.tasks.question_answering.answers import Candidate, Prediction, Question
from xlnet_tf.tasks.ranking import files as ranking
from xlnet_tf.tasks.scoring import MOST_MISTAKES
from xlnet_tf.tasks.tagging import files as tagging


def texts(kind, labels, count):
    rows = [{"id": str(number), "text": f"text {number}", "text_pair": "pair"} for number in range(count)]
    return types.SimpleNamespace(settings={"labels": labels, "kind": kind}, sidecar=lambda: iter(rows))


@pytest.mark.parametrize(
    ("kind", "targets", "outputs", "expected"),
    [
        (
            "classification",
            [0, 1, 0, 1],
            [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]],
            [("text 2 / pair", "a", "b"), ("text 1 / pair", "b", "a")],
        ),
        (
            "multi_label",
            [[1, 0], [1, 1], [0, 0]],
            [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]],
            [("text 2 / pair", "", "b"), ("text 1 / pair", "a,b", "a")],
        ),
        (
            "regression",
            [1.0, 2.0, 3.0],
            [np.float32(1.91), 2.0, 1.0],  # a float32 has digits that nobody wrote
            [("text 2 / pair", "3", "1"), ("text 0 / pair", "1", "1.91")],
        ),
    ],
)
def test_of_texts(kind, targets, outputs, expected):
    examples = texts(kind, [] if kind == "regression" else ["a", "b"], len(targets))
    assert [*classification.mistakes(examples, np.array(targets), np.array(outputs))] == expected


def test_of_many_texts_the_worst_are_kept():
    outputs = np.linspace(0, 1, 50)
    found = [*classification.mistakes(texts("regression", [], 50), np.zeros(50), outputs)]
    assert [one.text.split()[1] for one in found] == [str(n) for n in range(49, 49 - MOST_MISTAKES, -1)]


def test_of_sentences():
    def sentence(gold, predicted):
        return tagging.TaggedSentence("1", "New York wins", [(0, 3), (4, 8), (9, 13)], gold, predicted)

    right = sentence(["B-LOC", "I-LOC", "O"], ["B-LOC", "I-LOC", "O"])
    one = sentence(["B-LOC", "I-LOC", "O"], ["B-LOC", "O", "O"])
    all_wrong = sentence(["B-LOC", "I-LOC", "O"], ["O", "O", "B-LOC"])
    assert [*tagging.mistakes([right, one, all_wrong])] == [
        ("New York wins", "New B-LOC, York I-LOC, wins O", "New O, York O, wins B-LOC"),
        ("New York wins", "York I-LOC", "York O"),
    ]


def test_of_questions_with_options():
    questions = [{"question": f"which {n}?", "options": ["x", "y", "z"]} for n in range(2)]
    probabilities = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]])
    found = [*multiple_choice.mistakes(questions, np.array([0, 0]), probabilities)]
    assert found == [("which 0?", "x", "z")]


def test_of_queries():
    passages = [
        {"a": ("right", 2.0, 1), "b": ("wrong", 1.0, 0)},
        {"a": ("right", 1.0, 1), "b": ("wrong", 2.0, 0)},
        {"b": ("none is right", 2.0, 0)},
    ]
    queries = [ranking.RankedQuery(str(n), f"query {n}", [], each) for n, each in enumerate(passages)]
    assert [*ranking.mistakes(queries, 1)] == [("query 1", "right", "wrong")]


def test_of_questions_about_passages():
    passage, rows, predictions = Passage("In Oslo.", [0], [8]), [], {}
    for number, (answers, answer, no_answer) in enumerate(
        [(["Oslo"], "the Oslo!", -1.0), (["Oslo"], "In", -1.0), ([], "Oslo", -1.0), ([], "Oslo", 1.0)]
    ):
        rows += [{"id": str(number), "question": f"where {number}?", "answers": answers}] * 2  # windows
        question = Question(str(number), answers, passage, [], 0)
        predictions[str(number)] = Prediction(question, [Candidate(answer, 0, 0.0, 0.0)], no_answer)
    assert [*question_answering.mistakes(rows, predictions, 0.0)] == [
        ("where 1?", "Oslo", "In"),
        ("where 2?", "no answer", "Oslo"),
    ]

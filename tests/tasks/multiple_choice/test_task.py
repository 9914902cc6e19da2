"""Multiple choice: loss, accuracy by level, files; it learns; a recipe runs on a slice of RACE."""

import csv
import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.training import recipes
from tfrecord_builders.race.build import RaceOptions, build_race
from xlnet_tf.serving.answers.signatures import LOWEST
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.multiple_choice import task as multiple_choice
from xlnet_tf.tasks.multiple_choice.files import write_files
from xlnet_tf.tasks.multiple_choice.metrics import accuracies


def questions(count, seed, answered=True):
    """Invents questions of which the option with `tor` is right."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        answer = int(rng.integers(3))
        options = [f"{rng.choice(['ba', 'ne', 'mi'])} {rng.choice(['ren', 'do'])}" for _ in range(3)]
        options[answer] = f"tor {rng.choice(['ren', 'do'])}"
        row = {"context": "Kal sumi ren.", "question": "Su _ ?", "options": options}
        row |= {"level": ["high", "middle"][number % 3 == 0], "id": f"q{number}"}
        yield {**row, "answer": answer} if answered else row


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("choice")
    tokenizer = folder / "spiece.model"
    tokenizer.write_bytes(small_tokenizer.model_proto)
    files = {
        "train": [write_jsonl(folder / "train.jsonl", questions(64, 0))],
        "dev": [write_jsonl(folder / "dev.jsonl", questions(20, 1))],
        "test": [write_jsonl(folder / "test.jsonl", questions(5, 2, answered=False))],
    }
    build_race(RaceOptions(str(tokenizer), str(folder / "records"), seq_len=32, max_qa_len=16, **files))
    return folder / "records"


settings = functools.partial(recipes.settings, multiple_choice.EXPERIMENT, "race_small")


@pytest.fixture(scope="module")
def run(data):
    params = settings(data, task={"model": {"n_layer": 1}}, trainer={"validation_interval": 12})
    metrics = finetune(params, multiple_choice.MultipleChoiceTask, recipes.STRATEGY, str(data / "run"))
    return data / "run", metrics


@pytest.mark.integration
def test_it_learns_and_reports_each_level(run):
    _, metrics = run
    assert {"accuracy", "accuracy_high", "accuracy_middle", "loss"} <= set(metrics)
    assert metrics["accuracy"] >= 0.9


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_predictions_of_questions_without_answers(run, data, tmp_path):
    model_dir, _ = run
    opened, predictions = recipes.predict(model_dir, data / "test", 4)
    examples = opened.task.validation_set
    assert not opened.task.has_answers(examples)
    tsv, jsonl = opened.task.write_predictions(examples, predictions, str(tmp_path))
    with open(tsv) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    with open(jsonl) as file:
        lines = [json.loads(line) for line in file]
    assert [row["id"] for row in rows] == [line["id"] for line in lines] == [f"q{i}" for i in range(5)]
    for row, line in zip(rows, lines, strict=True):
        probabilities = [float(row[letter]) for letter in "ABC"]
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert row["answer"] == line["answer"] == "ABC"[np.argmax(probabilities)]
        assert line["answer_text"] == line["options"]["ABC".index(row["answer"])]
        assert line["option"] == line["answer_text"] and line["answer_text"].startswith("tor")
        np.testing.assert_allclose(line["probabilities"], probabilities, atol=1e-6)
    stored = predictions["probabilities"].tolist()
    assert [line["probabilities"] for line in lines] == stored  # all their digits


def test_more_options_than_letters_are_called_as_a_spreadsheets_columns(tmp_path):
    options = [f"tor {number}" for number in range(28)]
    question = {"id": "q", "level": "", "question": "", "options": options}
    tsv, jsonl = write_files([question], np.eye(28, dtype=np.float32)[27:], tmp_path)
    with open(tsv) as file:
        (row,) = csv.DictReader(file, delimiter="\t")
    assert [*row][26:] == ["Y", "Z", "AA", "AB"] and row["answer"] == "AB"
    with open(jsonl) as file:
        assert json.loads(file.read())["option"] == "tor 27"


def test_sums_of_a_batch(data):
    """Rows that fill it up do not count, and options that are tied for the best share a hit."""
    task = multiple_choice.MultipleChoiceTask(settings(data).task)
    logits = tf.constant([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [9.0, -9.0, 0.0]])
    features = {"label": tf.constant([0, 2, 1]), "index": tf.constant([4, 5, -1], tf.int64)}
    sums = {name: [float(x) for x in pair] for name, pair in task.sums(features, logits).items()}
    log_probabilities = tf.nn.log_softmax(logits).numpy()
    assert sums["loss"] == pytest.approx([-log_probabilities[0, 0] - log_probabilities[1, 2], 2])
    assert sums["accuracy"] == [1, 2]
    assert float(task.counts(features)["loss"]) == 2
    tied = tf.constant([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [1.0, 1.0, 0.0]])
    features = {"label": tf.constant([0, 1, 2, 2]), "index": tf.range(4, dtype=tf.int64)}
    assert float(task.sums(features, tied)["accuracy"][0]) == pytest.approx(1 / 2 + 1 / 2 + 1 / 3 + 0)


def test_options_that_a_question_lacks_have_no_part(data, tmp_path):
    """Their sequences are padding: no probability, no loss, and no wrong answer."""
    task = multiple_choice.MultipleChoiceTask(settings(data).task)
    logits = tf.constant([[2.0, 1.0, 9.0], [0.0, 3.0, 0.0]])
    mask = tf.constant([[1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1]])  # two tokens an option
    features = {"label": tf.constant([0, 1]), "index": tf.range(2, dtype=tf.int64), "input_mask": mask}
    sums = {name: [float(x) for x in pair] for name, pair in task.sums(features, logits).items()}
    expected = np.log1p(np.exp(-1)) + np.log1p(2 * np.exp(-3))
    assert sums["loss"] == pytest.approx([expected, 2], rel=1e-5) and sums["accuracy"] == [2, 2]
    found = {name: value.numpy() for name, value in task.predictions(features, logits).items()}
    assert found["probabilities"][0, 2] == 0 and found["probabilities"][0].sum() == pytest.approx(1)
    assert not task.has_collapsed(None, found)
    alike = {"probabilities": np.array([[0.5, 0.5, 0]]), "logits": np.array([[1, 1, LOWEST]], np.float32)}
    assert task.has_collapsed(None, alike)
    question = {"id": "q", "level": "", "question": "", "options": ["a", "b"]}
    tsv, _ = write_files([question], found["probabilities"][:1], tmp_path)
    with open(tsv) as file:
        assert file.read().endswith("\t\n")  # no probability


def test_accuracy_by_level_counts_questions_without_one_in_all_and_ties_as_shares():
    probabilities = np.eye(3)[[0, 1, 2, 0]]
    found = accuracies(probabilities, np.array([0, 1, 0, 1]), ["high", "middle", "high", ""])
    assert found == {"accuracy": 0.5, "accuracy_high": 0.5, "accuracy_middle": 1.0}
    tied = np.array([[0.25] * 4, [0.4, 0.4, 0.1, 0.1], [0.4, 0.4, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1]])
    found = accuracies(tied, np.array([0, 1, 2, 0]), [""] * 4)
    assert found == {"accuracy": pytest.approx((1 / 4 + 1 / 2 + 0 + 1) / 4)}

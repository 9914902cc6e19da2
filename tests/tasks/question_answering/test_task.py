"""Question answering from passages to answers: it learns what can be learned, and runs on real questions."""

import functools
import json
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.training import recipes
from tfrecord_builders.squad.build import SquadOptions, build_squad
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.passages import Passage
from xlnet_tf.tasks import prediction
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.question_answering import task as question_answering
from xlnet_tf.text.special_tokens import CLS_ID
from xlnet_tf.training.early_stopping import read_metrics

WORDS = ["ba", "ne", "mi", "ren", "do"]


def squad_file(path, count, seed, unanswerable=True, answered=True):
    """Writes questions whose answer is `kalsu` and the word after it; passages without it have none."""
    rng = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        words = list(rng.choice(WORDS, rng.integers(8, 30)))
        entry = {"id": f"q{number}", "question": "Kal su?", "answers": []}
        if unanswerable:
            entry["is_impossible"] = number % 3 == 0
        if not (unanswerable and number % 3 == 0):
            place = rng.integers(len(words))
            words[place:place] = ["kalsu"]
            text = " ".join(words[place : place + 2])
            entry["answers"] = [{"text": text, "answer_start": len(" ".join(words[:place] + [""]))}]
        if not answered:
            del entry["answers"], entry["is_impossible"]
        paragraphs.append({"context": " ".join(words), "qas": [entry]})
    version = "v2.0" if unanswerable else "1.1"
    path.write_text(json.dumps({"version": version, "data": [{"paragraphs": paragraphs}]}))
    return str(path)


def build(folder, tokenizer, unanswerable, **sizes):
    folder.mkdir()
    (folder / "spiece.model").write_bytes(tokenizer.model_proto)
    files = {
        "train": squad_file(folder / "train.json", 300, 0, unanswerable),
        "dev": squad_file(folder / "dev.json", 30, 1, unanswerable),
    }
    if unanswerable:
        files["test"] = squad_file(folder / "test.json", 9, 2, answered=False)
    sizes = {"seq_len": 32, "max_question_len": 8, "stride": 10, **sizes}
    build_squad(SquadOptions(str(folder / "spiece.model"), str(folder), **sizes, **files))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    return build(tmp_path_factory.mktemp("squad") / "v2", small_tokenizer, True)


@pytest.fixture(scope="module")
def data_v1(tmp_path_factory, small_tokenizer):
    return build(tmp_path_factory.mktemp("squad") / "v1", small_tokenizer, False)


settings = functools.partial(recipes.settings, question_answering.EXPERIMENT, "squad_small")


@pytest.fixture(scope="module")
def run(data):
    return data / "run", finetune(
        settings(data), question_answering.QuestionAnsweringTask, recipes.STRATEGY, str(data / "run")
    )


@pytest.mark.integration
def test_it_learns_answers_and_their_absence(run, data):
    model_dir, metrics = run
    assert metrics["best_f1"] > 90 and metrics["no_answer_exact"] > 80 and metrics["has_answer_f1"] > 80
    assert read_metrics(str(model_dir / "best"))["best_f1"] >= metrics["best_f1"]
    folders = model_dir, model_dir / "best"
    whole, best = (prediction.Run.open(str(folder), str(data / "test")) for folder in folders)
    assert best.task.no_answer_threshold() == whole.task.no_answer_threshold() is not None


@pytest.fixture(scope="module")
def in_segments(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("squad") / "segments"
    return build(folder, small_tokenizer, True, seq_len=80, segment_len=20, stride=40)


def test_predictions_in_segments_are_tokens_of_the_passage(in_segments):
    params = settings(in_segments, task={"model": {"segment_len": 20, "n_layer": 1}})
    params.task.validation_data.global_batch_size = 8
    task = question_answering.QuestionAnsweringTask(params.task)
    features = next(iter(task.build_inputs(params.task.validation_data)))
    outputs = task.build_model()(features, training=False)
    rows = task.evaluation_rows(features, outputs)
    passages = Passage.read_all(task.validation_set.folder)
    lines = list(task.validation_set.sidecar())
    encode = task.validation_set.load_tokenizer().encode
    checked = 0
    for row, index in enumerate(features["index"].numpy()):
        ids = features["input_word_ids"][row].numpy()
        of_passage = encode(passages[lines[index]["passage"]].text)[lines[index]["first"] :]
        for name in ("start", "end"):
            columns = (outputs, "log_probs"), (outputs, "index"), (rows, "index")
            found = zip(*(of[f"{name}_top_{column}"][row].numpy().ravel() for of, column in columns))
            for log_prob, position, token in found:
                if log_prob > -30 and ids[position] != CLS_ID:
                    assert token < lines[index]["length"] and of_passage[token] == ids[position]
                    checked += position > 20  # beyond the first segment
                else:
                    assert token >= lines[index]["length"]
    assert checked > 20


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "question in each segment of 20 tokens, and task.model.segment_len is 0: give --segment_len=20"),
        ({"segment_len": 40}, "task.model.segment_len is 40: give --segment_len=20"),
        ({"segment_len": 20, "memory_gradient": 4}, "is 4, expected 0 to 3: .* have 4 segments of 20 tokens"),
    ],
)
def test_segments_must_be_those_of_the_examples(in_segments, asked, message):
    with pytest.raises(UserError, match=message):
        params = settings(in_segments, task={"model": asked})
        question_answering.QuestionAnsweringTask(params.task).build_model()


def test_a_question_at_the_end_only_is_not_read_in_segments(data):
    with pytest.raises(UserError, match="question at the end .* with --segment_len=16"):
        question_answering.QuestionAnsweringTask(settings(data, task={"model": {"segment_len": 16}}).task)


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_predictions_for_questions_without_known_answers(run, data, tmp_path):
    model_dir, _ = run
    opened, predictions = recipes.predict(model_dir, data / "test", 4)
    examples = opened.task.validation_set
    assert not opened.task.has_answers(examples)
    paths = opened.task.write_predictions(examples, predictions, str(tmp_path))
    chosen, n_best, odds = (json.loads(Path(path).read_text()) for path in paths)
    assert list(chosen) == list(n_best) == list(odds) == [f"q{number}" for number in range(9)]
    threshold = read_metrics(str(model_dir / "best"))["best_f1_threshold"]
    for name, text in chosen.items():
        assert text == ("" if odds[name] > threshold else n_best[name][0]["text"])
    assert sum(text.startswith("kalsu") for text in chosen.values()) >= 5
    assert any(text == "" for text in chosen.values())
    opened.task.task_config.no_answer_threshold = 1e9
    opened.task.write_predictions(examples, predictions, str(tmp_path))
    assert all(json.loads(Path(paths[0]).read_text()).values())


def test_a_precision_needs_dev_examples_to_find_its_threshold(data):
    params = settings(data, task={"answer_precision": 0.5, "validation_data": {"input_path": ""}}).task
    with pytest.raises(UserError, match=r"\(--answer_precision\) is 0.5: .* --dev_split"):
        question_answering.QuestionAnsweringTask(params)
    trained_on = ExampleSet.load(str(data / "train"))
    assert question_answering.QuestionAnsweringTask(params, trained_on=trained_on).validation_set is None
    params.answer_precision = 0.0
    assert question_answering.QuestionAnsweringTask(params).validation_set is None


@pytest.mark.integration
def test_evaluation_finds_the_metrics_of_training_with_a_precision(data, tmp_path):
    """A run that has learned little, so that the threshold differs from that of the best F1."""
    tiny = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16}
    schedule = {"train_steps": 3, "validation_interval": 3}
    params = settings(data, task={"answer_precision": 0.5, "model": tiny}, trainer=schedule)
    metrics = finetune(params, question_answering.QuestionAnsweringTask, recipes.STRATEGY, str(tmp_path))
    assert metrics["precise_threshold"] != metrics["best_f1_threshold"]
    opened, predictions = recipes.predict(tmp_path, data / "dev", 7)
    found = opened.task.score(opened.task.validation_set, predictions)
    kept = read_metrics(str(tmp_path / "best"))
    assert {name: kept[name] for name in found} == pytest.approx(found, abs=1e-4)


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_a_training_set_can_be_evaluated(run, data):
    """It has the true positions, which the model must not be told."""
    opened, predictions = recipes.predict(run[0], data / "train", 100, "last")
    scores = opened.task.score(opened.task.validation_set, predictions)
    assert scores["best_f1"] > 90
    assert opened.task.constant_score(opened.task.validation_set) == pytest.approx(100 / 3)


@pytest.mark.parametrize("unanswerable", [True, False])
def test_the_loss_of_a_batch(data, data_v1, unanswerable):
    """Rows that fill up a batch do not count; nor does the absence of answers in 1.1."""
    task = question_answering.QuestionAnsweringTask(settings(data if unanswerable else data_v1).task)
    rng = np.random.default_rng(0)
    features = {f"{name}_position": tf.constant(rng.integers(0, 6, 4)) for name in ("start", "end")}
    features |= {"is_impossible": tf.constant([0, 1, 0, 1]), "index": tf.constant([7, 8, 9, -1])}
    outputs = {f"{n}_logits": tf.constant(rng.normal(size=[4, 6]), tf.float32) for n in ("start", "end")}
    outputs["no_answer_logits"] = tf.constant(rng.normal(size=4), tf.float32)
    losses, hits = [], 0
    for row in range(3):
        for name in ("start", "end"):
            logits, position = outputs[f"{name}_logits"][row].numpy(), int(features[f"{name}_position"][row])
            losses.append(0.5 * (np.log(np.exp(logits).sum()) - logits[position]))
            hits += name == "end" and logits.argmax() == position
        if unanswerable:
            sign = 1 if features["is_impossible"][row] else -1
            losses.append(0.5 * np.log1p(np.exp(-sign * float(outputs["no_answer_logits"][row]))))
    sums = task.sums(features, outputs)
    assert [float(value) for value in sums["loss"]] == pytest.approx([sum(losses), 3])
    assert [float(value) for value in sums["end_accuracy"]] == [hits, 3]
    assert float(task.counts(features)["loss"]) == 3


def test_a_share_of_right_answers_that_no_threshold_reaches_is_said():
    task = types.SimpleNamespace(task_config=question_answering.QuestionAnsweringConfig(answer_precision=0.9))
    shortfall = question_answering.QuestionAnsweringTask.shortfall
    found = {"precise_precision": 0.8, "precise_answered": 0.5}
    assert "0.8000 of the answers given, to 50.0% of the questions, are right, and" in shortfall(task, found)
    assert shortfall(task, {**found, "precise_precision": 0.9}) == ""
    task.task_config.answer_precision = 0.0
    assert shortfall(task, {}) == ""


def test_only_a_model_of_version_2_takes_both_versions(data, data_v1):
    """Questions to be predicted, without answers and a version, look like 1.1."""
    params = settings(data)
    params.task.validation_data.input_path = str(data_v1 / "dev")
    assert question_answering.QuestionAnsweringTask(params.task).unanswerable
    params = settings(data_v1)
    params.task.validation_data.input_path = str(data / "dev")
    with pytest.raises(UserError, match=r"v2/dev has questions without an answer .* \(1.1, .*v1/train\)"):
        question_answering.QuestionAnsweringTask(params.task)

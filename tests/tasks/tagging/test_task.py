"""Tagging: the loss, files for people and conlleval, and it learns; test_metrics.py has the scores."""

import functools
import json

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics as sk
import tensorflow as tf

from tests.helpers.training import recipes
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from xlnet_tf.errors import UserError
from xlnet_tf.tasks import export_checks
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.tagging import task as tagging
from xlnet_tf.tasks.tagging.metrics import entity_counts, tag_scores, type_table

settings = functools.partial(recipes.settings, tagging.EXPERIMENT, "conll2003_small")


def test_the_table_of_types_has_their_scores():
    """Of the two entities ORG, one is found, and one more is wrong."""
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "B-ORG", "O"]]
    predicted = [["I-PER", "I-PER", "O", "B-ORG"], ["B-ORG", "O", "O"]]
    rows = {line.split()[0]: line.split()[1:] for line in type_table(gold, predicted).split("\n")[2:] if line}
    assert rows["PER"] == ["1.0000", "1.0000", "1.0000", "1"]
    assert rows["ORG"] == ["0.5000", "0.5000", "0.5000", "2"]
    assert "no entities" in type_table([["O"]], [["O"]])


# The task, on invented words: those after `tor` are an entity.


def sentences(count, seed, **extra):
    rng = np.random.default_rng(seed)
    for number in range(count):
        words = rng.choice(["ba", "ne", "tor", "mi", "kal", "su"], rng.integers(3, 12)).tolist()
        tags = ["B-X" if before == "tor" else "O" for before in ["", *words[:-1]]]
        yield {"id": f"s{number}", "tokens": words, "tags": tags} | extra


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(path)]


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("tagging")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    texts = [{"id": "raw", "text": "Ba (tor) su, tor-kal! " * 8}, {"id": "end", "text": "ne tor\tmi"}]
    files = {
        "train": write_jsonl(folder / "train.jsonl", sentences(160, 0)),
        "dev": write_jsonl(folder / "dev.jsonl", sentences(30, 1)),
        "test": write_jsonl(folder / "test.jsonl", texts),
    }
    build_tagging(TaggingOptions(str(folder / "spiece.model"), str(folder), seq_len=32, **files))
    return folder


@pytest.fixture(scope="module")
def run(data):
    return data / "run", finetune(settings(data), tagging.TaggingTask, recipes.STRATEGY, str(data / "run"))


def predict(model_dir, folder, output):
    opened, predictions = recipes.predict(model_dir, folder, 8)
    examples = opened.task.validation_set
    tsv, jsonl = opened.task.write_predictions(examples, predictions, str(output))
    with open(tsv) as file:
        blocks = [[row.split("\t") for row in block.split("\n")] for block in file.read()[:-2].split("\n\n")]
    with open(jsonl) as file:
        lines = [json.loads(line) for line in file]
    return opened.task, examples, predictions, blocks, lines


@pytest.mark.integration
def test_it_learns_labels_that_depend_on_context(run):
    _, metrics = run
    assert {"f1", "precision", "recall", "strict_f1", "accuracy", "loss"} <= set(metrics)
    assert metrics["f1"] > 0.95


@pytest.mark.integration
def test_files_have_every_word_once_with_true_and_predicted_tags(run, data, tmp_path):
    task, examples, predictions, blocks, lines = predict(run[0], data / "dev", tmp_path)
    expected = list(sentences(30, 1))
    assert [[row[0] for row in block] for block in blocks] == [row["tokens"] for row in expected]
    assert [[row[1] for row in block] for block in blocks] == [row["tags"] for row in expected]
    gold, predicted = ([[row[column] for row in block] for block in blocks] for column in (1, 2))
    assert task.score(examples, predictions) == tag_scores(entity_counts(gold, predicted))
    assert "micro avg" in task.tables(examples, predictions)
    assert not task.has_collapsed(examples, predictions)
    assert task.has_collapsed(examples, {**predictions, "tags": np.zeros_like(predictions["tags"])})
    for row, block, line in zip(expected, blocks, lines, strict=True):
        assert (line["id"], line["text"]) == (row["id"], " ".join(row["tokens"]))
        for column, name in ((1, "true_entities"), (2, "entities")):
            words = [row[0] for row in block if row[column] != "O"]
            assert [entity["text"] for entity in line[name]] == words
            assert all(line["text"][e["start"] : e["end"]] == e["text"] for e in line[name])


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_words_have_probabilities_of_their_tags_that_are_calibrated(run, data, tmp_path):
    task, examples, predictions, blocks, _ = predict(run[0], data / "dev", tmp_path)
    found = task.probabilities(examples, predictions)
    gold, predicted = ([row[column] for block in blocks for row in block] for column in (1, 2))
    assert [found.labels[tag] for tag in found.targets.argmax(axis=1)] == gold  # windows are in order
    assert [found.labels[tag] for tag in found.values.argmax(axis=1)] == predicted
    [temperature] = export_checks.fit_temperature(str(run[0]), str(data / "dev"))

    def loss(t):
        probabilities = scipy.special.softmax(found.logits.astype(np.float64) / t, axis=1)
        return sk.log_loss(found.targets.argmax(axis=1), probabilities, labels=range(len(found.labels)))

    best = scipy.optimize.minimize_scalar(loss, bounds=(0.02, 50), method="bounded")
    assert temperature == pytest.approx(best.x, rel=1e-2)


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_entities_of_raw_texts_have_their_characters(run, data, tmp_path):
    task, examples, _, blocks, lines = predict(run[0], data / "test", tmp_path)
    assert not task.has_answers(examples) and examples.records > 2
    assert [line["id"] for line in lines] == ["raw", "end"]
    assert [row[0] for row in blocks[0]] == ["Ba", "(", "tor", ")", "su", ",", "tor", "-", "kal", "!"] * 8
    assert lines[1]["entities"] == [{"start": 7, "end": 9, "label": "X", "text": "mi"}]
    assert blocks[1] == [["ne", "O"], ["tor", "O"], ["mi", "B-X"]]
    for line in lines:
        assert "true_entities" not in line
        assert all(line["text"][e["start"] : e["end"]] == e["text"] for e in line["entities"])


def test_only_words_of_real_rows_count(data):
    task = tagging.TaggingTask(settings(data).task)
    logits = np.random.default_rng(0).normal(size=[3, 4, 3]).astype(np.float32)
    tags = np.array([[-1, 2, -1, 0], [-1, -1, 1, -1], [0, 1, 2, 0]], np.int16)
    features = {"tags": tf.constant(tags), "index": tf.constant([4, 5, -1], tf.int64)}
    sums = {name: [float(x) for x in pair] for name, pair in task.sums(features, tf.constant(logits)).items()}
    log_probabilities = scipy.special.log_softmax(logits, axis=-1)
    words = [(0, 1, 2), (0, 3, 0), (1, 2, 1)]
    assert sums["loss"] == pytest.approx([-sum(log_probabilities[word] for word in words), 3], rel=1e-5)
    hits = sum(int(logits[row, token].argmax() == tag) for row, token, tag in words)
    assert sums["accuracy"] == [hits, 3] and float(task.counts(features)["loss"]) == 3
    found = task.predictions(features, tf.constant(logits))["tags"]
    np.testing.assert_array_equal(found, logits.argmax(-1))


def test_words_are_weighed_by_their_tags_in_training_alone(data):
    params = settings(data)
    params.task.class_weights, params.task.label_smoothing = "balanced", 0.1
    task = tagging.TaggingTask(params.task)
    tags = task.example_set.column("tags")
    counts = np.bincount(tags[tags >= 0], minlength=3)  # O, B-X, I-X: the last one never
    features = next(iter(task.build_inputs(params.task.train_data)))
    logits = np.random.default_rng(0).normal(size=[*features["tags"].shape, 3]).astype(np.float32)
    log_probabilities = scipy.special.log_softmax(logits, axis=-1)
    expected = 0
    for row, token in np.argwhere(features["tags"] >= 0):
        tag = int(features["tags"][row, token])
        smoothed = 0.9 * log_probabilities[row, token, tag] + 0.1 * log_probabilities[row, token].mean()
        expected -= smoothed * counts.sum() / (2 * counts[tag])
    loss, count = task.sums(features, tf.constant(logits))["loss"]
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(count) == float(task.counts(features)["loss"])
    plain = tagging.TaggingTask(settings(data).task).sums(features, tf.constant(logits))
    unchanged = task.validation_sums(features, tf.constant(logits))
    assert tf.nest.map_structure(float, unchanged) == tf.nest.map_structure(float, plain)


def test_what_does_not_fit_is_refused(data, tmp_path):
    params = settings(data)
    params.task.train_data.input_path = str(data / "test")
    with pytest.raises(UserError, match="without answers"):
        finetune(params, tagging.TaggingTask, recipes.STRATEGY, str(tmp_path))
    with pytest.raises(UserError, match="segment_len is 12, expected a divisor of 32"):
        tagging.TaggingTask(settings(data, task={"model": {"segment_len": 12}}).task).build_model()

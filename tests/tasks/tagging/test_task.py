"""Tagging: scores against hand counts and seqeval, files for people and conlleval, and it learns."""

import collections
import functools
import gzip
import itertools
import json

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics as sk
import tensorflow as tf
from hypothesis import strategies as st

from tests.helpers.training import recipes
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from tfrecord_builders.tagging.data import read_sentences
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks import export_checks
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.tagging import task as tagging
from xlnet_tf.tasks.tagging.files import tagged_sentences
from xlnet_tf.tasks.tagging.metrics import entity_counts, tag_scores, type_table
from xlnet_tf.text.training import train_tokenizer

TAGS = st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), min_size=1, max_size=8)


settings = functools.partial(recipes.settings, tagging.EXPERIMENT, "conll2003_small")


# Scores.


def test_scores_match_manual_values():
    """Of four true entities, two are found (one of them not strictly), and one more is wrong."""
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "B-ORG", "O"]]
    predicted = [["I-PER", "I-PER", "O", "B-ORG"], ["B-ORG", "I-ORG", "O"]]
    predicted[1] = ["B-ORG", "O", "O"]
    scores = tag_scores(entity_counts(gold, predicted))
    expected = {"precision": 2 / 3, "recall": 2 / 4, "f1": 4 / 7, "strict_f1": 2 / 6, "accuracy": 4 / 7}
    assert scores == pytest.approx(expected)
    rows = {line.split()[0]: line.split()[1:] for line in type_table(gold, predicted).split("\n")[2:] if line}
    assert rows["PER"] == ["1.0000", "1.0000", "1.0000", "1"]
    assert rows["ORG"] == ["0.5000", "0.5000", "0.5000", "2"]


def test_no_entities_at_all():
    assert tag_scores(entity_counts([["O", "O"]], [["O", "O"]]))["f1"] == 0
    assert "no entities" in type_table([["O"]], [["O"]])


# The task, on invented words: those after `tor` are an entity.


def sentences(count, seed, **extra):
    rng = np.random.default_rng(seed)
    for number in range(count):
        words = [
            str(word) for word in rng.choice(["ba", "ne", "tor", "mi", "kal", "su"], rng.integers(3, 12))
        ]
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
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    words = [(0, 1, 2), (0, 3, 0), (1, 2, 1)]
    assert sums["loss"] == pytest.approx([-sum(log_probabilities[word] for word in words), 3], rel=1e-5)
    hits = sum(int(logits[row, token].argmax() == tag) for row, token, tag in words)
    assert sums["accuracy"] == [hits, 3] and float(task.counts(features)["loss"]) == 3
    assert (
        task.predictions(features, tf.constant(logits))["tags"].numpy().tolist() == logits.argmax(-1).tolist()
    )


def test_words_are_weighed_by_their_tags_in_training_alone(data):
    params = settings(data)
    params.task.class_weights, params.task.label_smoothing = "balanced", 0.1
    task = tagging.TaggingTask(params.task)
    tags = task.example_set.column("tags")
    counts = np.bincount(tags[tags >= 0], minlength=3)  # O, B-X, I-X: the last one never
    features = next(iter(task.build_inputs(params.task.train_data)))
    logits = np.random.default_rng(0).normal(size=[*features["tags"].shape, 3]).astype(np.float32)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
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
        task = tagging.TaggingTask(settings(data, task={"model": {"segment_len": 12}}).task)
        task.build_model()
    other = write_jsonl(tmp_path / "other.jsonl", sentences(4, 2))
    build_tagging(
        TaggingOptions(str(data / "spiece.model"), str(tmp_path), dev=other, types=["X", "Y"], seq_len=32)
    )
    params.task.train_data.input_path = str(data / "train")
    params.task.validation_data.input_path = str(tmp_path / "dev")
    with pytest.raises(UserError, match="labels of .* but the model is for"):
        tagging.TaggingTask(params.task)


def documents(count, seed):
    """In each document, `mi` is an entity if its first sentence, a segment earlier, says `tor`."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        says = number % 2 == 0
        yield {"document": str(number), "tokens": ["tor" if says else "kal"] * 3, "tags": ["O"] * 3}
        for _ in range(6):
            words = ["ba", "ne", "su", "mi", *map(str, rng.choice(["ba", "ne", "su"], 2))]
            tags = ["B-X" if says and word == "mi" else "O" for word in words]
            yield {"document": str(number), "tokens": words, "tags": tags}


@pytest.mark.long  # tests/models/test_reading.py shows quickly what memory carries
def test_documents_are_read_with_memory(tmp_path, small_tokenizer):
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    files = {
        "train": write_jsonl(tmp_path / "train.jsonl", documents(64, 0)),
        "dev": write_jsonl(tmp_path / "dev.jsonl", documents(16, 1)),
    }
    options = TaggingOptions(
        str(tmp_path / "spiece.model"), str(tmp_path), document=True, seq_len=64, **files
    )
    sets = build_tagging(options)
    assert sets["dev"].records == 16
    params = settings(tmp_path, task={"model": {"segment_len": 16, "memory_len": 48}, "epochs": 7})
    params.trainer.optimizer_config.learning_rate = 0.01
    metrics = finetune(params, tagging.TaggingTask, recipes.STRATEGY, str(tmp_path / "run"))
    without_memory = 2 / 3  # every `mi` an entity: precision 1/2, recall 1
    assert metrics["f1"] > without_memory + 0.2
    *_, blocks, lines = predict(tmp_path / "run", tmp_path / "dev", tmp_path / "predictions")
    assert [[row[0] for row in block] for block in blocks] == [row["tokens"] for row in documents(16, 1)]


# Real data.


def most_frequent_tags(train, dev):
    """The baseline: each word's most frequent tag in the training data, O for others."""
    counts = collections.defaultdict(collections.Counter)
    for word, tag in itertools.chain.from_iterable(zip(row.words, row.tags) for row in train):
        counts[word][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return [[best.get(word, "O") for word in row.words] for row in dev]


@pytest.mark.long  # the recipe itself is run by `run`, below
def test_the_small_recipe_on_a_slice_of_conll2003(tmp_path, shared):
    files, rows = {}, {}
    for split, name, count in (("train", "train", 1000), ("dev", "valid", 400)):
        text = gzip.decompress(shared(f"data/conll2003/bio_{name}.txt.gz").read_bytes()).decode()
        (tmp_path / f"{split}.txt").write_text("\n\n".join(text.split("\n\n")[:count]) + "\n")
        files[split] = [str(tmp_path / f"{split}.txt")]
        rows[split] = list(read_sentences(files[split][0]))
    tokenizer = train_tokenizer((" ".join(row.words) for row in rows["train"]), 500)
    (tmp_path / "spiece.model").write_bytes(tokenizer.model_proto)
    build_tagging(TaggingOptions(str(tmp_path / "spiece.model"), str(tmp_path), seq_len=64, **files))
    gold = [row.tags for row in rows["dev"]]
    baseline = tag_scores(entity_counts(gold, most_frequent_tags(rows["train"], rows["dev"])))
    assert (len(rows["train"]), len(gold), round(baseline["f1"], 3)) == (940, 380, 0.533)
    metrics = finetune(settings(tmp_path), tagging.TaggingTask, recipes.STRATEGY, str(tmp_path / "run"))
    assert metrics["f1"] > baseline["f1"] and metrics["accuracy"] > baseline["accuracy"]

    examples = ExampleSet.load(tmp_path / "dev")
    found = tagged_sentences(examples, examples.arrays())
    assert [sentence.words for sentence in found] == [row.words for row in rows["dev"]]

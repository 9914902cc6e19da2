"""Ranking: losses, records gathered to queries, run files; it learns; a recipe runs on a slice of WikiQA."""

import functools
import itertools
import json
import logging
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.training import recipes
from tfrecord_builders.ranking.build import RankingOptions, build_ranking
from xlnet_tf.errors import UserError
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.ranking import task as ranking
from xlnet_tf.tasks.ranking.files import ranked_queries, write_files
from xlnet_tf.tasks.ranking.losses import LOSSES

LOGITS = np.array([[2.0, 0.5, -1.0, 7.0], [0.3, -0.2, 1.1, 0.0], [1.0, 2.0, 3.0, 4.0]], np.float32)
RELEVANCE = np.array([[0, 1, 0, -1], [2, 1, 0, 0], [0, 0, -1, -1]], np.int32)


def value(name, logits=LOGITS, relevance=RELEVANCE, relevant_from=1):
    return [float(x) for x in LOSSES[name](tf.constant(logits), tf.constant(relevance), relevant_from)]


def log_sum_exp(logits):
    return np.log(np.exp(logits).sum())


def test_losses_match_manual_values():
    pointwise = [
        np.log1p(np.exp(-score if grade >= 1 else score))
        for score, grade in zip(LOGITS.ravel(), RELEVANCE.ravel(), strict=True)
        if grade >= 0
    ]
    assert value("pointwise") == pytest.approx([sum(pointwise), 9])
    pairwise = [
        np.log1p(np.exp(scores[j] - scores[i]))
        for scores, grades in zip(LOGITS, RELEVANCE, strict=True)
        for i, j in itertools.permutations(range(4), 2)
        if grades[i] > grades[j] >= 0
    ]
    assert value("pairwise") == pytest.approx([sum(pairwise), 2 + 5])
    first = log_sum_exp(LOGITS[0, :3]) - LOGITS[0, 1]
    second = log_sum_exp(LOGITS[1]) - 2 / 3 * LOGITS[1, 0] - 1 / 3 * LOGITS[1, 1]
    assert value("listwise") == pytest.approx([first + second, 2])
    assert value("listwise", relevant_from=2)[1] == 1
    assert value("pointwise", relevant_from=2) != pytest.approx(value("pointwise"))


@pytest.mark.parametrize("name", LOSSES)
def test_slots_without_a_candidate_take_no_part(name):
    other = np.where(RELEVANCE < 0, 50.0, LOGITS).astype(np.float32)
    assert value(name, other) == pytest.approx(value(name))
    assert value(name, relevance=np.full_like(RELEVANCE, -1)) == [0, 0]
    with tf.GradientTape() as tape:
        logits = tf.Variable(LOGITS)
        loss, _ = LOSSES[name](logits, tf.constant(RELEVANCE), 1)
    gradient = tape.gradient(loss, logits).numpy()
    assert np.isfinite(gradient).all() and (gradient[RELEVANCE < 0] == 0).all()


def read_lines(path):
    return pathlib.Path(path).read_text().splitlines()


RECORDS = [
    {"query_id": "q 1", "query": "ba ?", "passages": [{"id": "a", "text": "A"}, {"id": "b", "text": "B"}]},
    {"query_id": "q 1", "query": "ba ?", "passages": [{"id": "c d", "text": "C"}]},
    {"query_id": "q2", "query": "ne ?", "passages": [{"id": "a", "text": "A"}, {"id": "b", "text": "B"}]},
]
SCORES = np.array([[1.0, 3.0], [2.0, 99.0], [0.5, 0.5]])


def test_records_of_a_query_are_ranked_together_and_written(tmp_path):
    records = [{**record, "missing": []} for record in RECORDS]
    queries = ranked_queries(records, SCORES, np.array([[0, 0], [1, -1], [0, 1]]))
    run, jsonl = write_files(queries, tmp_path)
    ranked = ["q_1 Q0 b 1 3", "q_1 Q0 c_d 2 2", "q_1 Q0 a 3 1", "q2 Q0 a 1 0.5", "q2 Q0 b 2 0.5"]
    assert read_lines(run) == [f"{line} xlnet" for line in ranked]
    lines = [json.loads(line) for line in read_lines(jsonl)]
    assert [line["query_id"] for line in lines] == ["q 1", "q2"]
    assert [passage["text"] for passage in lines[0]["passages"]] == ["B", "C", "A"]
    assert list(queries[0].judged().relevance) == [0, 0, 1]
    (query,) = ranked_queries(records[:1] * 2, SCORES[:2], np.zeros((2, 2), int))
    assert len(query.judged().scores) == 2  # a passage of several records counts once


def support(path, queries, seed):
    """Invents messages with replies, of which those with `tor` help."""
    rng = np.random.default_rng(seed)
    lines = ["message,reply,helped"]
    for number in range(queries):
        good = rng.permutation(5) == 0
        for helps in good:
            word = "tor" if helps else rng.choice(["ba", "ne", "mi"])
            lines.append(f"su {number} ?,{word} {rng.choice(['ren', 'do', 'kal'])},{int(helps)}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("ranking")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    unlabelled = folder / "test.csv"
    unlabelled.write_text("message,reply\nsu ?,ba ren\nsu ?,tor ren\nsu ?,ne do\n")
    splits = {"train": support(folder / "train.csv", 40, 0), "dev": support(folder / "dev.csv", 9, 1)}
    columns = {"query_column": "message", "passage_column": "reply", "relevance_column": "helped"}
    sizes = {"candidates": 4, "seq_len": 24, "max_query_len": 8}
    files = str(folder / "spiece.model"), str(folder)
    build_ranking(RankingOptions(*files, test=str(unlabelled), **splits, **columns, **sizes))
    return folder


settings = functools.partial(recipes.settings, ranking.EXPERIMENT, "wikiqa_small")


@pytest.fixture(scope="module")
def run(data):
    task = {"epochs": 6, "model": {"n_layer": 1}}
    params = settings(data, task=task, trainer={"validation_interval": 20})
    return data / "run", finetune(params, ranking.RankingTask, recipes.STRATEGY, str(data / "run"))


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_it_learns_to_rank_the_helpful_reply_first(run, data, caplog):
    model_dir, metrics = run
    assert metrics["map"] == metrics["mrr"] >= 0.9  # one relevant reply for each message
    assert (metrics["queries"], metrics["queries_left_out"]) == (9, 0)
    assert isinstance(metrics["queries"], int)  # tables print 9, not 9.0000
    assert metrics["pair_accuracy"] >= 0.9
    opened, predictions = recipes.predict(model_dir, data / "dev", 2)
    assert "all alike" not in caplog.text
    caplog.set_level(logging.WARNING, logger="absl")
    examples, flat = opened.task.validation_set, np.full_like(predictions["score"], 0.3)
    opened.task.warn_if_collapsed(examples, {**predictions, "score": flat})
    assert f"the model's scores are all alike for {examples.folder}" in caplog.text
    assert opened.task.score(examples, {**predictions, "score": flat})["map"] < 0.8


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_replies_that_nobody_has_judged_are_ranked(run, data, tmp_path):
    model_dir, _ = run
    opened, predictions = recipes.predict(model_dir, data / "test", 2)
    examples = opened.task.validation_set
    assert not opened.task.has_answers(examples)
    run_file, _ = opened.task.write_predictions(examples, predictions, str(tmp_path))
    fields = [line.split() for line in read_lines(run_file)]
    assert [(f[0], f[1], f[3], f[5]) for f in fields] == [("1", "Q0", str(r), "xlnet") for r in (1, 2, 3)]
    assert fields[0][2] == "2"
    scores = [float(f[4]) for f in fields]
    assert scores == sorted(scores, reverse=True)


def test_sums_of_a_batch(data):
    """Rows that fill it up do not count, and of ties a half does."""
    for name in LOSSES:
        task = ranking.RankingTask(settings(data, task={"loss": name}).task)
        features = {"relevance": tf.constant(RELEVANCE), "index": tf.constant([0, -1, 1], tf.int64)}
        sums = task.sums(features, tf.constant(LOGITS))
        loss, count = (float(x) for x in sums["loss"])
        assert [loss, count] == pytest.approx(value(name, LOGITS[[0, 2]], RELEVANCE[[0, 2]]))
        assert float(task.counts(features)["loss"]) == count
    assert [float(x) for x in sums["pair_accuracy"]] == [1, 2]
    features = {"relevance": tf.constant([[0, 1, 0, -1]]), "index": tf.constant([0], tf.int64)}
    assert [float(x) for x in task.sums(features, tf.zeros([1, 4]))["pair_accuracy"]] == [1, 2]
    with pytest.raises(UserError, match="task.loss is 'hinge', expected one of pointwise, pairwise"):
        ranking.RankingTask(settings(data, task={"loss": "hinge"}).task).build_model()

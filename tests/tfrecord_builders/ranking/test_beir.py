"""BEIR's and MTEB's folders, MS MARCO's judgements, and candidates without a run."""

import json

import pytest

from tests.helpers.records import builders
from tests.tfrecord_builders.ranking.test_build import build, slots, write  # noqa: F401
from tfrecord_builders.ranking.queries import read_judgements
from xlnet_tf.errors import UserError

QUERIES = [{"_id": f"q{i}", "text": f"ka {w}", "metadata": {}} for i, w in enumerate(["ren", "sol", "du"])]
WORDS = ["qui", "bor", "mi", "to"]
CORPUS = [{"_id": f"d{i}", "title": "tomi" * (i == 0), "text": word} for i, word in enumerate(WORDS)]
HEADER = "query-id\tcorpus-id\tscore"


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "scifact"
    (folder / "qrels").mkdir(parents=True)
    write(folder / "queries.jsonl", *map(json.dumps, QUERIES))
    write(folder / "corpus.jsonl", *map(json.dumps, CORPUS))
    write(folder / "qrels/train.tsv", HEADER, "q0\td0\t1", "q1\td1\t2")
    write(folder / "qrels/test.tsv", HEADER, "q2\td2\t1")
    return str(folder)


def test_a_folder_has_the_queries_of_each_split(tmp_path, tokenizer_file, beir):
    options = {"format": "beir", "train": beir, "test": beir, "depth": 4}
    sets = builders.build("ranking", tmp_path, tokenizer_file, **options)
    train = slots(sets["train"])
    assert {query for query, _ in train} == {"ka ren", "ka sol"}
    [(query, passages)] = slots(sets["test"])
    assert query == "ka du" and passages[0] == ("mi", 1)
    assert sorted(passages) == [("bor", 0), ("mi", 1), ("to", 0), ("tomi qui", 0)]
    assert slots(builders.build("ranking", tmp_path, tokenizer_file, **options)["train"]) == train


def test_a_run_has_the_candidates(build, tmp_path, beir):  # noqa: F811
    run = write(tmp_path / "run.txt", "q2 Q0 d3 1 9 bm25", "q2 Q0 d2 2 8 bm25")
    [(_, passages)] = slots(build(format="beir", test=beir, run=run))
    assert passages == [("to", 0), ("mi", 1)]
    with pytest.raises(UserError, match="format=beir has no candidates: give --run.* or --depth=50"):
        build(format="beir", test=beir)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([HEADER, "q\td\t0"], [("q", "d", 0)]),
        (["q\td\t2"], [("q", "d", 2)]),
        (["1\t7", "1\t8"], [("1", "7", 1), ("1", "8", 1)]),
    ],
)
def test_judgements_of_three_and_two_columns(tmp_path, lines, expected):
    path = write(tmp_path / "qrels.tsv", *lines)
    assert [judgement[:3] for judgement in read_judgements(path)] == expected


@pytest.mark.parametrize("lines", [["1 0 2 1", "1 0 2"], ["1 2", "1 2 x"], ["1 2 x"]])
def test_lines_that_are_cut_are_not_read_as_others(tmp_path, lines):
    path = write(tmp_path / "qrels.tsv", *lines)
    with pytest.raises(UserError, match=rf"qrels.tsv:{len(lines)}: .*MS MARCO's 'query-id passage-id'"):
        list(read_judgements(path))

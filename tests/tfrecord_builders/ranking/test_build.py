"""Ranking records: what goes into which slot, from tables, WikiQA, TREC and BEIR; bad input is named."""

import collections
import json

import pytest

from tests.helpers.records import builders
from tfrecord_builders.ranking.queries import read_judgements
from xlnet_tf.errors import UserError
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID

WORDS = ["ka", "tomi", "ren", "sol", "du", "velan", "qui", "bor", "mi", "to"]
HEADER = "query\tpassage\trelevance\n"
# Customer support: replies to two messages; of the second message's, two help, one of them more.
REPLIES = [("ka ren ?", WORDS[i], int(i == 2)) for i in range(6)]
REPLIES += [("sol du ?", WORDS[i], {7: 1, 8: 2}.get(i, 0)) for i in range(6, 10)]
SUPPORT = [{"message": message, "reply": reply, "helped": grade} for message, reply, grade in REPLIES]
COLUMNS = {"query_column": "message", "passage_column": "reply", "relevance_column": "helped"}


def write(path, *lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def slots(example_set):
    """Returns, for each record, (query, [(passage text, relevance)])."""
    relevance = example_set.arrays()["relevance"]
    return [
        (row["query"], list(zip([p["text"] for p in row["passages"]], map(int, grades), strict=False)))
        for row, grades in zip(example_set.sidecar(), relevance, strict=True)
    ]


def places(example_set):
    return {reason: skipped["places"] for reason, skipped in example_set.skipped.items()}


@pytest.fixture
def build(tmp_path, tokenizer_file):
    """Builds one split, of which the content or the file is given."""

    def build(**options):
        [split] = {"train", "dev", "test"} & options.keys()
        return builders.build("ranking", tmp_path, tokenizer_file, overwrite=True, **options)[split]

    return build


def test_long_texts_are_cut_at_their_ends_and_counted(build, tokenizer):
    query, passage = "ka tomi ren " * 9, "sol du velan " * 20
    dev = build(dev=f"{HEADER}{query}\t{passage}\t1\n")
    expected = [*tokenizer.encode(query)[:8], SEP_ID, *tokenizer.encode(passage)[:21], SEP_ID, CLS_ID]
    assert list(dev.arrays()["input_ids"].reshape(4, 32)[0]) == expected
    assert dev.statistics["queries cut"] == dev.statistics["passages cut"] == 1


def test_training_records_have_a_relevant_passage_and_less_relevant_ones(build):
    turns, drawn, by_query = collections.Counter(), collections.Counter(), collections.Counter()
    for query, candidates in slots(build(train=SUPPORT, num_passes=20, **COLUMNS)):
        by_query[query] += 1
        grades = [grade for _, grade in candidates]
        assert len({text for text, _ in candidates}) == len(candidates)
        assert grades.count(max(grades)) == 1 and max(grades) >= 1
        if query == "ka ren ?":
            assert len(candidates) == 4 and grades.count(0) == 3
            turns[grades.index(1)] += 1
            drawn.update(text for text, grade in candidates if grade == 0)
    assert by_query == {"ka ren ?": 20, "sol du ?": 40}  # 1 and 2 relevant replies
    assert set(turns) == {0, 1, 2, 3}, "the relevant passage's slot must not tell that it is relevant"
    assert set(drawn) == {"ka", "tomi", "sol", "du", "velan"}
    few = build(train=SUPPORT, relevant_from=2, **COLUMNS)
    assert [query for query, _ in slots(few)] == ["sol du ?"]
    assert [place[-2:] for place in places(few)["query without a relevant passage"]] == [":1"]


def test_queries_that_teach_nothing_are_counted(build, tmp_path):
    rows = "ka\tto\t0\nka\tmi\t0\nsol\tdu\t1\nren\tqui\t1\nren\tbor\t0\nmi\t \t1\n \tto\t1\n"
    train = build(train=HEADER + rows)
    expected = {"query without a relevant passage": 2, "query whose passages are all alike relevant": 4}
    expected |= {"empty passage": 7, "empty query": 8}
    assert train.records == 1
    assert places(train) == {reason: [f"{tmp_path}/train.tsv:{line}"] for reason, line in expected.items()}


def test_lines_of_a_query_may_be_apart_and_ids_are_kept(build, tmp_path):
    lines = ["7\tka\ta\tto\t1", "8\tka\ta\tmi\t0", "7\tka\tb\tsol\t0", "7\tka\ta\tdu\t0"]
    dev = build(dev="\n".join(["query_id\tquery\tpassage_id\tpassage\trelevance", *lines]))
    rows = [(row["query_id"], [p["id"] for p in row["passages"]]) for row in dev.sidecar()]
    assert rows == [("7", ["a", "b"]), ("8", ["a"])]
    assert places(dev) == {"passage given twice for a query": [f"{tmp_path}/dev.tsv:5"]}


def test_a_test_split_needs_no_relevance(build):
    without = "query\tpassage\nka\tto\nka\tmi\n"
    for content in (without, HEADER + "ka\tto\t\nka\tmi\t\n", HEADER + "ka\tto\t-1\nka\tmi\t-1.0\n"):
        test = build(test=content)
        assert list(test.arrays()["relevance"][0]) == [-1] * 4 and not test.settings["judged"]
    with pytest.raises(UserError, match=r"dev.tsv:2.*relevance"):
        build(dev=without)


def test_rows_without_ids_are_numbered_with_free_numbers(build):
    """Empty ids, as null in Parquet, are not given; a text that is another query's id is not that query."""
    rows = [("", "ka", "", "ren"), (None, "ka", "1", "sol"), ("1", "to", None, "ren")]
    rows += [("ka", "mi", "x", "ren"), ("", "ka", None, "du")]
    names = ("query_id", "query", "passage_id", "passage")
    dev = build(dev=[{**dict(zip(names, row)), "relevance": 1} for row in rows])
    found = [
        (line["query_id"], line["query"], [(each["id"], each["text"]) for each in line["passages"]])
        for line in dev.sidecar()
    ]
    assert found == [
        ("2", "ka", [("2", "ren"), ("1", "sol"), ("3", "du")]),
        ("1", "to", [("1", "ren")]),
        ("ka", "mi", [("x", "ren")]),
    ]


def aligned(folder, ref=("1 0 0 0", "1 0 1 1")):
    """WikiQA with its judgements next to it."""
    write(folder / "W.ref", *ref)
    return write(folder / "W.txt", 'ka "ren ?\tto\t0', 'ka "ren ?\tmi\t1')


def test_both_forms_of_wikiqa_give_the_same(build, tmp_path):
    header = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"
    rows = ['Q1\tka "ren ?\tD1\tT\tD1-0\tto\t0', 'Q1\tka "ren ?\tD1\tT\tD1-1\tmi\t1']
    for path in (write(tmp_path / "W.tsv", header, *rows), aligned(tmp_path)):
        [(_, candidates)] = slots(build(train=path, format="wikiqa"))
        assert sorted(candidates) == [("mi", 1), ("to", 0)]


def test_files_of_wikiqa_that_do_not_belong_together(build, tmp_path):
    for ref, message in (
        (("1 0 0 0",), r"W.txt:2 has no line in the .ref file"),
        (("1 0 0 0", "1 0 1 1", "1 0 2 0"), r"W.ref:3 has no line in .*W.txt"),
        (("1 0 0 0", "1 0 1 0"), r"W.txt:2: the label is 1, but 0 in .*W.ref:2"),
        (("1 0 0 0", "1 0 1"), r"W.ref:2: '1 0 1', expected 'query-id 0 passage-id relevance'"),
    ):
        with pytest.raises(UserError, match=message):
            build(train=aligned(tmp_path, ref), format="wikiqa")


def test_the_real_development_set_of_wikiqa(tmp_path, shared):
    """2,733 sentences for 296 questions, 126 of them answered, as the data set's paper has it."""
    for name in ("WikiQA-dev.tsv", "WikiQA-dev.txt.gz"):
        options = {"format": "wikiqa", "seq_len": 64, "max_query_len": 24, "candidates": 8, "overwrite": True}
        options["dev"] = str(shared(f"data/wikiqa/{name}"))
        dev = builders.build("ranking", tmp_path, shared("data/xlnet_cased/spiece.model"), **options)["dev"]
        relevance, queries = dev.arrays()["relevance"], [row["query_id"] for row in dev.sidecar()]
        assert (relevance >= 0).sum() == 2733 and (relevance == 1).sum() == 140 and not dev.skipped
        answered = {q for q, grades in zip(queries, relevance, strict=True) if grades.max() > 0}
        assert (len(set(queries)), len(answered)) == (296, 126)


@pytest.fixture
def trec(build, tmp_path):
    """Builds a split of TREC's files, some lines of which are given."""
    run = ("1 Q0 d0 1 9.5 bm25", "1 Q0 d1 2 9.1 bm25", "2 Q0 d2 1 3 bm25")

    qrels = ("1 0 d1 2", "1 0 d0 -2", "2 0 d5 1", "2 0 d2 0")

    def build_trec(split, run=run, qrels=qrels, run_file="", **options):
        return build(
            format="trec",
            **{split: write(tmp_path / "queries.tsv", "1\tka ren", "2\tsol", "3\tmi to")},
            collection=write(tmp_path / "collection.tsv", *(f"d{i}\t{word}" for i, word in enumerate(WORDS))),
            run=run_file or write(tmp_path / "run.txt", *run),
            qrels=qrels and write(tmp_path / "qrels.txt", *qrels),
            **options,
        )

    return build_trec


def test_dev_reranks_the_run_and_remembers_what_it_misses(trec, tmp_path):
    dev = trec("dev")
    assert slots(dev) == [("ka ren", [("ka", 0), ("tomi", 2)]), ("sol", [("ren", 0)])]
    assert [row["missing"] for row in dev.sidecar()] == [[], [1]]
    assert places(dev) == {"query without candidates": [f"{tmp_path}/queries.tsv:3"]}
    (tmp_path / "run.txt").rename(tmp_path / "run.dev.txt")
    dev = trec("dev", run=(), run_file=str(tmp_path / "run.{split}.txt"), depth=1)  # the split's name
    assert slots(dev) == [("ka ren", [("ka", 0)]), ("sol", [("ren", 0)])]
    assert [row["missing"] for row in dev.sidecar()] == [[2], [1]]
    tables = (["1\td0\tka ren\tka", "1\td1\tka ren\ttomi"], ["1\td0\t1", "1\td1\t2"])
    for run in (*tables, ["1 d0", "1 d1"]):  # other forms of a run
        assert slots(trec("dev", run=run)) == [("ka ren", [("ka", 0), ("tomi", 2)])]
    found = slots(trec("test", qrels=""))  # without judgements the relevance is not known
    assert {grade for _, candidates in found for _, grade in candidates} == {-1}
    found = [sorted(candidates) for _, candidates in slots(trec("train"))]  # with what the run misses
    assert found == [[("ka", 0), ("tomi", 2)], [("ren", 0), ("velan", 1)]]


def test_unknown_ids_are_counted(trec, tmp_path):
    run = ["1 Q0 d0 1 9 x", "9 Q0 d1 2 9 x", "1 Q0 d99 3 9 x", "1 Q0 d0 4 9 x", "1 Q0 d1 5 8 x"]
    dev = trec("dev", run=run, qrels=["1 0 d0 1", "9 0 d1 1"])
    assert slots(dev) == [("ka ren", [("ka", 1), ("tomi", 0)])]
    assert places(dev) == {
        "judgement for a query that is not in the split": [f"{tmp_path}/qrels.txt:2"],
        "candidate of a query that is not in the split": [f"{tmp_path}/run.txt:2"],
        "candidate that is not in the collection": [f"{tmp_path}/run.txt:3"],
        "passage given twice for a query": [f"{tmp_path}/run.txt:4"],
        "query without candidates": [f"{tmp_path}/queries.tsv:{line}" for line in (2, 3)],
    }


def test_bad_lines_of_trec_are_named(trec):
    for parts, message in (
        ({"run": ["1 Q0 d0 1 9"]}, r"run.txt:1: 5 fields, expected 6"),
        ({"qrels": ["1 0 d0 high"]}, r"qrels.txt:1: '1 0 d0 high', expected"),
        ({"qrels": ["1 0 1 7187158"]}, r"qrels.txt:1: the relevance is '7187158', expected .* 1 to 100"),
    ):
        with pytest.raises(UserError, match=message):
            trec("dev", **parts)


QUERIES = [{"_id": f"q{i}", "text": f"ka {w}", "metadata": {}} for i, w in enumerate(["ren", "sol", "du"])]
CORPUS = [{"_id": f"d{i}", "title": "tomi" * (i == 0), "text": word} for i, word in enumerate(WORDS[6:])]
QRELS = "query-id\tcorpus-id\tscore"


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "scifact"
    (folder / "qrels").mkdir(parents=True)
    write(folder / "queries.jsonl", *map(json.dumps, QUERIES))
    write(folder / "corpus.jsonl", *map(json.dumps, CORPUS))
    write(folder / "qrels/train.tsv", QRELS, "q0\td0\t1", "q1\td1\t2")
    write(folder / "qrels/test.tsv", QRELS, "q2\td2\t1")
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


def test_a_run_has_the_candidates(build, tmp_path, beir):
    run = write(tmp_path / "run.txt", "q2 Q0 d3 1 9 bm25", "q2 Q0 d2 2 8 bm25")
    [(_, passages)] = slots(build(format="beir", test=beir, run=run))
    assert passages == [("to", 0), ("mi", 1)]
    with pytest.raises(UserError, match="format=beir has no candidates: give --run.* or --depth=50"):
        build(format="beir", test=beir)


def test_judgements_of_three_and_two_columns(tmp_path):
    for lines, expected in (
        ([QRELS, "q\td\t0"], [("q", "d", 0)]),
        (["q\td\t2"], [("q", "d", 2)]),
        (["1\t7", "1\t8"], [("1", "7", 1), ("1", "8", 1)]),
    ):
        path = write(tmp_path / "qrels.tsv", *lines)
        assert [judgement[:3] for judgement in read_judgements(path)] == expected


@pytest.mark.parametrize("lines", [["1 0 2 1", "1 0 2"], ["1 2", "1 2 x"], ["1 2 x"]])
def test_lines_that_are_cut_are_not_read_as_others(tmp_path, lines):
    path = write(tmp_path / "qrels.tsv", *lines)
    with pytest.raises(UserError, match=rf"qrels.tsv:{len(lines)}: .*MS MARCO's 'query-id passage-id'"):
        list(read_judgements(path))

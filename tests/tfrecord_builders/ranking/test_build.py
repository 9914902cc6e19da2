"""Ranking records: what goes into which slot, from tables, WikiQA and TREC's files; bad input is named."""

import collections
import json

import numpy as np
import pytest

from tfrecord_builders.ranking.build import RankingOptions, build_ranking
from xlnet_tf.errors import UserError
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

WORDS = ["ka", "tomi", "ren", "sol", "du", "velan", "qui", "bor", "mi", "to"]


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def build(tmp_path, tokenizer_file, **options):
    options = {"seq_len": 32, "max_query_len": 8, "candidates": 4, **options}
    return build_ranking(RankingOptions(str(tokenizer_file), str(tmp_path / "records"), **options))


def support_csv(path):
    """Customer support: replies to two messages; of the second message's, two help, one of them more."""
    replies = [("ka ren ?", WORDS[i], int(i == 2)) for i in range(6)]
    replies += [("sol du ?", WORDS[i], {7: 1, 8: 2}.get(i, 0)) for i in range(6, 10)]
    return write(path, "message,reply,helped", *(f'"{m}","{r}",{h}' for m, r, h in replies))


SUPPORT = {"query_column": "message", "passage_column": "reply", "relevance_column": "helped"}


def slots(example_set):
    """Returns, for each record, (query, [(passage text, relevance)])."""
    relevance = example_set.arrays()["relevance"]
    return [
        (row["query"], list(zip([p["text"] for p in row["passages"]], map(int, grades), strict=False)))
        for row, grades in zip(example_set.sidecar(), relevance, strict=True)
    ]


def test_dev_has_all_candidates_in_order_and_empty_slots_last(tmp_path, tokenizer_file):
    dev = build(tmp_path, tokenizer_file, dev=support_csv(tmp_path / "s.csv"), **SUPPORT)["dev"]
    assert slots(dev) == [
        ("ka ren ?", [("ka", 0), ("tomi", 0), ("ren", 1), ("sol", 0)]),
        ("ka ren ?", [("du", 0), ("velan", 0)]),
        ("sol du ?", [("qui", 0), ("bor", 1), ("mi", 2), ("to", 0)]),
    ]
    arrays = dev.arrays()
    assert list(arrays["relevance"][1]) == [0, 0, -1, -1]
    assert (arrays["input_ids"].reshape(3, 4, 32)[1, 2:] == PAD_ID).all()
    assert dev.statistics["candidates"] == 10 and dev.statistics["queries"] == 2


def test_a_sequence_is_query_passage_cls_padded_left(tmp_path, tokenizer_file):
    tokenizer = XLNetTokenizer(tokenizer_file)
    dev = build(tmp_path, tokenizer_file, dev=support_csv(tmp_path / "s.csv"), **SUPPORT)["dev"]
    tokens = [*tokenizer.encode("sol du ?"), SEP_ID, *tokenizer.encode("bor"), SEP_ID, CLS_ID]
    arrays = dev.arrays()
    sequence = arrays["input_ids"].reshape(3, 4, 32)[2, 1]
    assert list(sequence) == [PAD_ID] * (32 - len(tokens)) + tokens
    segment_ids = arrays["segment_ids"].reshape(3, 4, 32)[2, 1]
    first = len(tokenizer.encode("sol du ?")) + 1
    assert list(segment_ids[-len(tokens) :]) == [0] * first + [1] * (len(tokens) - first - 1) + [2]


def test_long_texts_are_cut_at_their_ends_and_counted(tmp_path, tokenizer_file):
    tokenizer = XLNetTokenizer(tokenizer_file)
    query, passage = "ka tomi ren " * 9, "sol du velan " * 20
    path = write(tmp_path / "p.tsv", "query\tpassage\trelevance", f"{query}\t{passage}\t1")
    dev = build(tmp_path, tokenizer_file, dev=path)["dev"]
    sequence = dev.arrays()["input_ids"].reshape(4, 32)[0]
    expected = [*tokenizer.encode(query)[:8], SEP_ID, *tokenizer.encode(passage)[:21], SEP_ID, CLS_ID]
    assert list(sequence) == expected
    assert dev.statistics["queries cut"] == dev.statistics["passages cut"] == 1


def test_training_records_have_a_relevant_passage_and_less_relevant_ones(tmp_path, tokenizer_file):
    path = support_csv(tmp_path / "s.csv")
    train = build(tmp_path, tokenizer_file, train=path, num_passes=20, **SUPPORT)["train"]
    places, drawn = collections.Counter(), collections.Counter()
    by_query = collections.Counter()
    for query, candidates in slots(train):
        by_query[query] += 1
        grades = [grade for _, grade in candidates]
        assert len({text for text, _ in candidates}) == len(candidates)
        best = max(grades)
        assert grades.count(best) == 1 and best >= 1
        if query == "ka ren ?":
            assert len(candidates) == 4 and grades.count(0) == 3
            places[grades.index(1)] += 1
            drawn.update(text for text, grade in candidates if grade == 0)
    assert by_query == {"ka ren ?": 20, "sol du ?": 40}  # 1 and 2 relevant replies
    assert set(places) == {0, 1, 2, 3}, "the relevant passage's slot must not tell that it is relevant"
    assert set(drawn) == {"ka", "tomi", "sol", "du", "velan"}


def test_grades_below_the_threshold_are_not_relevant(tmp_path, tokenizer_file):
    path = support_csv(tmp_path / "s.csv")
    train = build(tmp_path, tokenizer_file, train=path, relevant_from=2, **SUPPORT)["train"]
    assert [query for query, _ in slots(train)] == ["sol du ?"]
    assert train.skipped["query without a relevant passage"]["places"] == [f"{path}:2"]


def test_queries_that_teach_nothing_are_counted(tmp_path, tokenizer_file):
    rows = [("ka", "to", 0), ("ka", "mi", 0), ("sol", "du", 1), ("ren", "qui", 1), ("ren", "bor", 0)]
    rows += [("mi", " ", 1), (" ", "to", 1)]
    path = write(
        tmp_path / "p.jsonl", *(json.dumps(dict(zip(("query", "passage", "relevance"), r))) for r in rows)
    )
    train = build(tmp_path, tokenizer_file, train=path)["train"]
    assert train.records == 1
    assert {reason: skipped["places"] for reason, skipped in train.skipped.items()} == {
        "query without a relevant passage": [f"{path}:1"],
        "query whose passages are all alike relevant": [f"{path}:3"],
        "empty passage": [f"{path}:6"],
        "empty query": [f"{path}:7"],
    }


def test_lines_of_a_query_may_be_apart_and_ids_are_kept(tmp_path, tokenizer_file):
    header = "query_id\tquery\tpassage_id\tpassage\trelevance"
    lines = ["7\tka\ta\tto\t1", "8\tka\ta\tmi\t0", "7\tka\tb\tsol\t0", "7\tka\ta\tdu\t0"]
    path = write(tmp_path / "p.tsv", header, *lines)
    dev = build(tmp_path, tokenizer_file, dev=path)["dev"]
    rows = [(row["query_id"], [p["id"] for p in row["passages"]]) for row in dev.sidecar()]
    assert rows == [("7", ["a", "b"]), ("8", ["a"])]
    assert dev.skipped["passage given twice for a query"]["places"] == [f"{path}:5"]


def test_a_test_split_needs_no_relevance(tmp_path, tokenizer_file):
    path = write(tmp_path / "p.tsv", "query\tpassage", "ka\tto", "ka\tmi")
    assert list(build(tmp_path, tokenizer_file, test=path)["test"].arrays()["relevance"][0]) == [-1] * 4
    with pytest.raises(UserError, match=r"p.tsv:2.*relevance"):
        build(tmp_path, tokenizer_file, dev=path)
    path = write(tmp_path / "p.tsv", "query\tpassage\trelevance", "ka\tto\t", "ka\tmi\t")
    assert not build(tmp_path, tokenizer_file, test=path)["test"].settings["judged"]
    path = write(tmp_path / "p.tsv", "query\tpassage\trelevance", "ka\tto\t-1", "ka\tmi\t-1.0")
    assert not build(tmp_path, tokenizer_file, test=path)["test"].settings["judged"]


def test_a_relevance_is_a_whole_number_however_it_is_spelled(tmp_path, tokenizer_file):
    for spellings in (("1", "0", "3"), ("1.0", "0.0", "3."), ("True", "false", "3")):
        lines = [f"ka\t{text}\t{grade}" for text, grade in zip(("to", "mi", "du"), spellings)]
        path = write(tmp_path / "p.tsv", "query\tpassage\trelevance", *lines)
        built = build(tmp_path, tokenizer_file, dev=path)["dev"]
        assert sorted(built.arrays()["relevance"][0]) == [-1, 0, 1, 3]


class TestWikiQA:
    HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"

    def official(self, path):
        rows = ['Q1\tka "ren ?\tD1\tT\tD1-0\tto\t0', 'Q1\tka "ren ?\tD1\tT\tD1-1\tmi\t1']
        return write(path, self.HEADER, *rows)

    def aligned(self, folder, text=('ka "ren ?\tto\t0', 'ka "ren ?\tmi\t1'), ref=("1 0 0 0", "1 0 1 1")):
        write(folder / "W.ref", *ref)
        return write(folder / "W.txt", *text)

    def test_both_forms_give_the_same(self, tmp_path, tokenizer_file):
        a, b = (
            [
                sorted(candidates)
                for _, candidates in slots(
                    build(folder, tokenizer_file, format="wikiqa", train=path)["train"]
                )
            ]
            for folder, path in (
                (tmp_path / "official", self.official(tmp_path / "W.tsv")),
                (tmp_path / "aligned", self.aligned(tmp_path)),
            )
        )
        assert a == b == [[("mi", 1), ("to", 0)]]

    @pytest.mark.parametrize(
        ("ref", "message"),
        [
            (("1 0 0 0",), r"W.txt:2 has no line in the .ref file"),
            (("1 0 0 0", "1 0 1 1", "1 0 2 0"), r"W.ref:3 has no line in .*W.txt"),
            (("1 0 0 0", "1 0 1 0"), r"W.txt:2: the label is 1, but 0 in .*W.ref:2"),
            (("1 0 0 0", "1 0 1"), r"W.ref:2: '1 0 1', expected 'query-id 0 passage-id relevance'"),
        ],
    )
    def test_files_that_do_not_belong_together(self, tmp_path, tokenizer_file, ref, message):
        path = self.aligned(tmp_path, ref=ref)
        with pytest.raises(UserError, match=message):
            build(tmp_path, tokenizer_file, format="wikiqa", train=path)

    def test_the_real_development_set(self, tmp_path, shared):
        """2,733 sentences for 296 questions, 126 of them answered, as the data set's paper has it."""
        tokenizer = shared("data/xlnet_cased/spiece.model")
        options = {"format": "wikiqa", "seq_len": 64, "max_query_len": 24, "candidates": 8}
        found = [
            build(tmp_path / name, tokenizer, dev=str(shared(f"data/wikiqa/{name}")), **options)["dev"]
            for name in ("WikiQA-dev.tsv", "WikiQA-dev.txt.gz")
        ]
        for dev in found:
            arrays, queries = dev.arrays(), [row["query_id"] for row in dev.sidecar()]
            assert (arrays["relevance"] >= 0).sum() == 2733 and not dev.skipped
            answered = {q for q, grades in zip(queries, arrays["relevance"], strict=True) if grades.max() > 0}
            assert (len(set(queries)), len(answered)) == (296, 126)
        first, second = (dev.arrays() for dev in found)
        assert (first["relevance"] == second["relevance"]).all() and (first["relevance"] == 1).sum() == 140


class TestTrec:
    def files(self, folder, run=None, qrels=None):
        write(folder / "queries.tsv", "1\tka ren", "2\tsol", "3\tmi to")
        write(folder / "collection.tsv", *(f"d{i}\t{word}" for i, word in enumerate(WORDS)))
        write(folder / "run.txt", *(run or ["1 Q0 d0 1 9.5 bm25", "1 Q0 d1 2 9.1 bm25", "2 Q0 d2 1 3 bm25"]))
        write(folder / "qrels.txt", *(qrels or ["1 0 d1 2", "1 0 d0 -2", "2 0 d5 1", "2 0 d2 0"]))
        return {
            "format": "trec",
            "collection": str(folder / "collection.tsv"),
            "run": str(folder / "run.txt"),
            "qrels": str(folder / "qrels.txt"),
        }

    def test_dev_reranks_the_run_and_remembers_what_it_misses(self, tmp_path, tokenizer_file):
        files = self.files(tmp_path)
        dev = build(tmp_path, tokenizer_file, dev=str(tmp_path / "queries.tsv"), **files)["dev"]
        assert slots(dev) == [("ka ren", [("ka", 0), ("tomi", 2)]), ("sol", [("ren", 0)])]
        assert [row["missing"] for row in dev.sidecar()] == [[], [1]]
        assert dev.skipped == {
            "query without candidates": {"count": 1, "places": [f"{tmp_path}/queries.tsv:3"]}
        }

    def test_training_takes_the_relevant_passages_that_the_run_misses(self, tmp_path, tokenizer_file):
        files = self.files(tmp_path)
        train = build(tmp_path, tokenizer_file, train=str(tmp_path / "queries.tsv"), **files)["train"]
        assert [sorted(candidates) for _, candidates in slots(train)] == [
            [("ka", 0), ("tomi", 2)],
            [("ren", 0), ("velan", 1)],
        ]

    @pytest.mark.parametrize(
        "run", [["1\td0\tka ren\tka", "1\td1\tka ren\ttomi"], ["1 d0", "1 d1"], ["1\td0\t1", "1\td1\t2"]]
    )
    def test_other_forms_of_a_run(self, tmp_path, tokenizer_file, run):
        files = self.files(tmp_path, run=run)
        dev = build(tmp_path, tokenizer_file, dev=str(tmp_path / "queries.tsv"), **files)["dev"]
        assert slots(dev) == [("ka ren", [("ka", 0), ("tomi", 2)])]

    def test_the_split_stands_in_for_its_name(self, tmp_path, tokenizer_file):
        files = {**self.files(tmp_path), "run": str(tmp_path / "run.{split}.txt"), "depth": 1}
        (tmp_path / "run.txt").rename(tmp_path / "run.dev.txt")
        dev = build(tmp_path, tokenizer_file, dev=str(tmp_path / "queries.tsv"), **files)["dev"]
        assert slots(dev) == [("ka ren", [("ka", 0)]), ("sol", [("ren", 0)])]
        assert [row["missing"] for row in dev.sidecar()] == [[2], [1]]

    def test_without_judgements_the_relevance_is_not_known(self, tmp_path, tokenizer_file):
        files = {**self.files(tmp_path), "qrels": ""}
        test = build(tmp_path, tokenizer_file, test=str(tmp_path / "queries.tsv"), **files)["test"]
        assert {grade for _, candidates in slots(test) for _, grade in candidates} == {-1}

    def test_unknown_ids_are_counted(self, tmp_path, tokenizer_file):
        run = ["1 Q0 d0 1 9 x", "9 Q0 d1 2 9 x", "1 Q0 d99 3 9 x", "1 Q0 d0 4 9 x", "1 Q0 d1 5 8 x"]
        files = self.files(tmp_path, run=run, qrels=["1 0 d0 1", "9 0 d1 1"])
        dev = build(tmp_path, tokenizer_file, dev=str(tmp_path / "queries.tsv"), **files)["dev"]
        assert slots(dev) == [("ka ren", [("ka", 1), ("tomi", 0)])]
        assert {reason: skipped["places"] for reason, skipped in dev.skipped.items()} == {
            "judgement for a query that is not in the split": [f"{tmp_path}/qrels.txt:2"],
            "candidate of a query that is not in the split": [f"{tmp_path}/run.txt:2"],
            "candidate that is not in the collection": [f"{tmp_path}/run.txt:3"],
            "passage given twice for a query": [f"{tmp_path}/run.txt:4"],
            "query without candidates": [f"{tmp_path}/queries.tsv:{line}" for line in (2, 3)],
        }

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ({"run": ["1 Q0 d0 1 9"]}, r"run.txt:1: 5 fields, expected 6"),
            ({"qrels": ["1 0 d0 1.5"]}, r"qrels.txt:1: the relevance is '1.5'"),
            ({"qrels": ["1 0 d0 high"]}, r"qrels.txt:1: '1 0 d0 high', expected"),
            ({"qrels": ["1 0 1 7187158"]}, r"qrels.txt:1: the relevance is '7187158', expected .* 1 to 100"),
            ({"qrels": ["1 0 d0 " + "9" * 5000]}, r"qrels.txt:1: the relevance is '999"),
        ],
    )
    def test_bad_lines_are_named(self, tmp_path, tokenizer_file, parts, message):
        files = self.files(tmp_path, **parts)
        with pytest.raises(UserError, match=message):
            build(tmp_path, tokenizer_file, dev=str(tmp_path / "queries.tsv"), **files)


def test_every_candidate_is_written_once(tmp_path, tokenizer_file):
    rng = np.random.default_rng(0)
    lines = ["query\tpassage\trelevance"]
    sizes = rng.integers(1, 12, 9)
    for query, size in enumerate(sizes):
        lines += [f"{WORDS[query]}\t{WORDS[i % 10]} {i}\t{rng.integers(0, 3)}" for i in range(size)]
    dev = build(tmp_path, tokenizer_file, dev=write(tmp_path / "p.tsv", *lines))["dev"]
    found = [(query, *candidate) for query, candidates in slots(dev) for candidate in candidates]
    assert found == [(q, p, int(r)) for q, p, r in (line.split("\t") for line in lines[1:])]
    assert dev.records == sum(-(-size // 4) for size in sizes)


def test_rows_without_ids_are_numbered_with_free_numbers(tmp_path, tokenizer_file):
    """Empty ids, as null in Parquet, are not given; a text that is another query's id is not that query."""
    pairs = [
        ("", "ka", "", "ren"),
        (None, "ka", "1", "sol"),
        ("1", "to", None, "ren"),
        ("ka", "mi", "x", "ren"),
        ("", "ka", None, "du"),
    ]
    names = ("query_id", "query", "passage_id", "passage")
    lines = [json.dumps({**dict(zip(names, pair)), "relevance": 1}) for pair in pairs]
    dev = build(tmp_path, tokenizer_file, dev=write(tmp_path / "p.jsonl", *lines))["dev"]
    found = [
        (line["query_id"], line["query"], [(each["id"], each["text"]) for each in line["passages"]])
        for line in dev.sidecar()
    ]
    assert found == [
        ("2", "ka", [("2", "ren"), ("1", "sol"), ("3", "du")]),
        ("1", "to", [("1", "ren")]),
        ("ka", "mi", [("x", "ren")]),
    ]

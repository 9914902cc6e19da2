"""Labels: which ones a table has, their order and numbers, and where they may be missing."""

import itertools

import numpy as np
import pytest

from tests.helpers.records.builders import jsonl
from tests.helpers.records.labelled import labels_of, table
from tfrecord_builders.classification.labels import in_order
from xlnet_tf.errors import UserError


@pytest.fixture
def train(tmp_path):
    rows = [("Ka tomi ren.", "good"), ("Sol du velan.", "bad"), ("Mi to ka.", "so-so")]
    return table(tmp_path / "train.csv", ("text", "label"), *rows)


def test_numbers_as_labels_are_in_their_order_and_nan_last():
    assert in_order(["10", "2", "-1", "2"]) == ("-1", "2", "10")
    assert in_order(["1.0", "0.0"]) == ("0.0", "1.0")  # one spelling stays
    labels = ["nan", "2", "-inf", "1.0", "1", "NaN"]
    assert {in_order(each) for each in itertools.permutations(labels)} == {("-inf", "1", "2", "NaN", "nan")}


def test_one_and_one_point_zero_are_one_label(build, tmp_path):
    """As in json, where one writer gives 1 and another 1.0, and in csv, where pandas does."""
    labels = {"train": [1, 1.0, 0, 2.5, "1.10"], "dev": ["1.0", 0.0, 2.5, "1.10", 1]}
    files = {
        split: jsonl(tmp_path / f"{split}.jsonl", [{"text": "Ka tomi.", "label": label} for label in given])
        for split, given in labels.items()
    }
    built = build(**files)
    assert built["train"].settings["labels"] == ["0", "1", "1.10", "2.5"]
    assert [labels_of(built[split]) for split in files] == [[1, 1, 0, 3, 2], [1, 0, 3, 2, 1]]
    same = table(tmp_path / "same.csv", ("text", "label"), ("Ka.", "1"), ("Du.", "1.0"))
    with pytest.raises(UserError, match="only the label 1 "):
        build(train=same)


def test_several_labels_in_one_column(build, tmp_path):
    rows = ("ka", "b;a"), ("mi", ""), ("du", "c ")
    train = table(tmp_path / "t.tsv", ("text", "label"), *rows, delimiter="\t")
    lists = [{"text": "ka", "label": ["b", "a"]}, {"text": "mi", "label": []}, {"text": "du", "label": ["c"]}]
    for path, separator in ((train, ";"), (jsonl(tmp_path / "t.jsonl", lists), "")):
        options = {"label_separator": separator} if separator else {}
        examples = build(train=path, kind="multi_label", overwrite=True, **options)["train"]
        assert examples.settings["labels"] == ["a", "b", "c"]
        assert labels_of(examples) == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_several_labels_in_columns_of_their_own(build, tmp_path):
    train, test = tmp_path / "t.csv", table(tmp_path / "u.csv", ("text",), ("ka",))
    options = {"kind": "multi_label", "label_column": ["rude", "mad"], "overwrite": True}
    for yes, no in ((1, 0), ("True", "False"), ("TRUE", "false"), ("1.0", "0.0"), (" 1", "0 ")):
        table(train, ("text", "rude", "mad"), ("ka", yes, no), ("mi", yes, yes))
        built = build(train=str(train), test=test, **options)
        assert built["train"].settings["labels"] == ["rude", "mad"]
        assert labels_of(built["train"]) == [[1, 0], [1, 1]] and labels_of(built["test"]) == [[-1, -1]]
    table(train, ("text", "rude", "mad"), ("ka", 1, 0), ("mi", 1, "yes"))
    with pytest.raises(UserError, match=r"t\.csv:3: column 'mad' has 'yes', expected 0 or 1"):
        build(train=str(train), **options)


def test_more_labels_than_the_table_shows_are_counted(build, train, tmp_path, caplog):
    rows = [(f"ka {number}", f"topic {number:02d}") for number in range(24)]
    many = table(tmp_path / "many.csv", ("text", "label"), *rows * 3)
    assert build(train=many)["train"].statistics["labels"] == 24
    build(train=train, overwrite=True)  # three labels in few rows
    assert not caplog.records
    build(train=table(tmp_path / "own.csv", ("text", "label"), *rows, *rows[:4]), overwrite=True)
    [warning] = [record.getMessage() for record in caplog.records]
    for part in ("own.csv has 24 labels in 28 rows, nearly every", "--label_column", "--kind=regression"):
        assert part in warning


def test_only_a_test_split_may_lack_labels(build, train, tmp_path):
    test = table(tmp_path / "test.csv", ("text",), ("ka",), ("mi",))
    labels = ["bad", "good", "so-so"]
    for built in (build(train=train, test=test), build(test=test, labels=labels)):
        assert labels_of(built["test"]) == [-1, -1] and not built["test"].settings["labelled"]
        assert built["test"].settings["labels"] == labels
    with pytest.raises(UserError, match=r"test\.csv:2: there is no column 'label', only text"):
        build(train=train, dev=test)


@pytest.mark.parametrize("blank", [{}, {"label": None}, {"label": " "}])
def test_a_test_split_has_labels_in_all_rows_or_in_none(build, train, tmp_path, blank):
    def build_test(*labels):
        rows = [{"text": "ka", **(blank if label is None else {"label": label})} for label in labels]
        return build(train=train, test=jsonl(tmp_path / "test.jsonl", rows))["test"]

    examples = build_test(None, None)
    assert labels_of(examples) == [-1, -1] and not examples.settings["labelled"]
    assert labels_of(build_test("good", "bad")) == [1, 0]
    for labels, unlabelled, labelled in (((None, "good"), 1, 2), (("good", "bad", None), 3, 1)):
        message = rf"test\.jsonl:{unlabelled}: no label in column 'label', but .*:{labelled} has one: give"
        with pytest.raises(UserError, match=message):
            build_test(*labels)


def test_labels_of_a_test_split_that_are_all_minus_one_are_none(build, tmp_path):
    for kind, labels, hidden in (
        ("classification", ("bad", "good"), [-1, -1]),
        ("classification", ("0", "1"), ["-1", None]),
        ("classification", ("-1", "0", "1"), None),  # where -1 is a label
        ("regression", (), [-1.0, -1]),
        ("multi_label", ("bad", "good"), [-1, -1]),
    ):
        columns = labels if kind == "multi_label" else ("label",)
        rows = [{"text": "ka", **dict.fromkeys(columns, label)} for label in hidden or [-1, -1]]
        options = {"kind": kind, "labels": labels or None, "label_column": columns, "overwrite": True}
        examples = build(test=jsonl(tmp_path / "test.jsonl", rows), **options)["test"]
        assert examples.settings["labelled"] == (hidden is None)
        found = examples.arrays()["label"]
        assert np.isnan(found).all() if kind == "regression" else (found == (-1 if hidden else 0)).all()

"""Labels: which ones a table has, their order and numbers, and where they may be missing."""

import itertools
import json

import numpy as np
import pytest

from tests.helpers.records.labelled import builder, labels_of, table
from tfrecord_builders.classification.labels import in_order
from xlnet_tf.errors import UserError

TRAIN = [("Ka tomi ren.", "good"), ("Sol du velan.", "bad"), ("Qui bor.", "good"), ("Mi to ka.", "so-so")]


@pytest.fixture
def build(tmp_path, tokenizer_file):
    return builder(tmp_path, tokenizer_file)


@pytest.fixture
def files(tmp_path):
    return {"train": table(tmp_path / "train.csv", ("text", "label"), *TRAIN)}


def test_numbers_as_labels_are_in_their_order():
    assert in_order(["10", "2", "-1", "2"]) == ("-1", "2", "10")


def test_labels_that_are_nan_are_last_in_any_order_of_the_input():
    labels = ["nan", "2", "-inf", "1.0", "1", "NaN"]
    assert {in_order(each) for each in itertools.permutations(labels)} == {("-inf", "1", "2", "NaN", "nan")}


def test_one_and_one_point_zero_are_one_label(build, tmp_path):
    """As in json, where one writer gives 1 and another 1.0, and in csv, where pandas does."""
    rows = {"train": [1, 1.0, 0, 2.5, "1.10"], "dev": ["1.0", 0.0, 2.5, "1.10", 1]}
    for split, labels in rows.items():
        lines = [json.dumps({"text": "Ka tomi.", "label": label}) for label in labels]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    built = build(**{split: str(tmp_path / f"{split}.jsonl") for split in rows})
    assert built["train"].settings["labels"] == ["0", "1", "1.10", "2.5"]
    assert built["train"].arrays()["label"].tolist() == [1, 1, 0, 3, 2]
    assert built["dev"].arrays()["label"].tolist() == [1, 0, 3, 2, 1]
    assert in_order(["1.0", "0.0"]) == ("0.0", "1.0")  # as before where there is one spelling
    same = table(tmp_path / "same.csv", ("text", "label"), ("Ka.", "1"), ("Du.", "1.0"))
    with pytest.raises(UserError, match="only the label 1 "):
        build(train=same)


@pytest.mark.parametrize("label", ["1e39", "-3.5e38"])
def test_a_number_beyond_float32_is_named_with_its_row(build, tmp_path, label):
    train = table(tmp_path / "t.csv", ("text", "label"), ("Ka.", 3.4e38), ("Du.", label))
    with pytest.raises(UserError, match=rf"t.csv:3: the label is '{label}', expected at most 3.403e\+38"):
        build(train=train, kind="regression")


def test_several_labels_in_one_column(build, tmp_path):
    train = table(
        tmp_path / "t.tsv", ("text", "label"), ("ka", "b;a"), ("mi", ""), ("du", "c "), delimiter="\t"
    )
    examples = build(train=train, kind="multi_label", label_separator=";")["train"]
    assert examples.settings["labels"] == ["a", "b", "c"]
    assert labels_of(examples) == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    lines = [{"text": "ka", "label": ["b", "a"]}, {"text": "mi", "label": []}, {"text": "du", "label": ["c"]}]
    jsonl = tmp_path / "t.jsonl"
    jsonl.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert labels_of(build(train=str(jsonl), kind="multi_label")["train"]) == labels_of(examples)


def test_several_labels_in_columns_of_their_own(build, tmp_path):
    train = table(tmp_path / "t.csv", ("text", "rude", "mad"), ("ka", 1, 0), ("mi", 1, 1))
    test = table(tmp_path / "u.csv", ("text",), ("ka",))
    built = build(train=train, test=test, kind="multi_label", label_column=["rude", "mad"])
    assert built["train"].settings["labels"] == ["rude", "mad"]
    assert labels_of(built["train"]) == [[1, 0], [1, 1]]
    assert labels_of(built["test"]) == [[-1, -1]]
    for yes, no in (("True", "False"), ("TRUE", "false"), ("1.0", "0.0"), (" 1", "0 ")):
        table(tmp_path / "t.csv", ("text", "rude", "mad"), ("ka", yes, no), ("mi", yes, yes))
        built = build(train=train, kind="multi_label", label_column=["rude", "mad"], overwrite=True)
        assert labels_of(built["train"]) == [[1, 0], [1, 1]]
    table(tmp_path / "t.csv", ("text", "rude", "mad"), ("ka", 1, 0), ("mi", 1, "yes"))
    with pytest.raises(UserError, match=r"t\.csv:3: column 'mad' has 'yes', expected 0 or 1"):
        build(train=train, kind="multi_label", label_column=["rude", "mad"])


def test_more_labels_than_the_table_shows_are_counted(build, files, tmp_path, caplog):
    labels = [f"topic {number:02d}" for number in range(24)]
    rows = [(f"ka {label}", label) for label in labels]
    train = table(tmp_path / "many.csv", ("text", "label"), *rows * 3)
    assert build(train=train)["train"].statistics["labels"] == 24 and not caplog.records
    train = table(tmp_path / "own.csv", ("text", "label"), *rows, *rows[:4])
    build(train=train)
    [warning] = [record.getMessage() for record in caplog.records]
    assert "own.csv has 24 labels in 28 rows, nearly every row one of its own" in warning
    assert "--label_column" in warning and "--kind=regression" in warning
    caplog.clear()
    build(**files, overwrite=True)  # three labels in few rows
    assert not caplog.records


def test_only_a_test_split_may_lack_labels(build, files, tmp_path):
    test = table(tmp_path / "test.csv", ("text",), ("ka",), ("mi",))
    built = build(**files, test=test)
    assert labels_of(built["test"]) == [-1, -1] and not built["test"].settings["labelled"]
    with pytest.raises(UserError, match=r"test\.csv:2: there is no column 'label', only text"):
        build(train=files["train"], dev=test)
    alone = build(test=test, labels=["bad", "good", "so-so"])
    assert list(alone) == ["test"] and alone["test"].settings["labels"] == ["bad", "good", "so-so"]


@pytest.mark.parametrize("blank", [{}, {"label": None}, {"label": " "}])
def test_a_test_split_has_labels_in_all_rows_or_in_none(build, files, tmp_path, blank):
    def build_test(*labels):
        rows = [{"text": "ka", **(blank if label is None else {"label": label})} for label in labels]
        (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return build(**files, test=str(tmp_path / "test.jsonl"))["test"]

    examples = build_test(None, None)
    assert labels_of(examples) == [-1, -1] and not examples.settings["labelled"]
    assert labels_of(build_test("good", "bad")) == [1, 0]
    for labels, unlabelled, labelled in (((None, "good"), 1, 2), (("good", "bad", None), 3, 1)):
        message = rf"test\.jsonl:{unlabelled}: no label in column 'label', but .*:{labelled} has one: give"
        with pytest.raises(UserError, match=message):
            build_test(*labels)


@pytest.mark.parametrize(
    ("kind", "labels", "hidden"),
    [
        ("classification", ("bad", "good"), [-1, -1]),
        ("classification", ("0", "1"), ["-1", None]),
        ("classification", ("-1", "0", "1"), None),  # where -1 is a label
        ("regression", (), [-1.0, -1]),
        ("multi_label", ("bad", "good"), [-1, -1]),
    ],
)
def test_labels_of_a_test_split_that_are_all_minus_one_are_none(build, tmp_path, kind, labels, hidden):
    columns = labels if kind == "multi_label" else ("label",)
    rows = [{"text": "ka", **dict.fromkeys(columns, label)} for label in hidden or [-1, -1]]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"labels": labels or None, "label_column": columns}
    examples = build(test=str(tmp_path / "test.jsonl"), kind=kind, **options)["test"]
    assert examples.settings["labelled"] == (hidden is None)
    found = examples.arrays()["label"]
    assert np.isnan(found).all() if kind == "regression" else (found == (-1 if hidden else 0)).all()


@pytest.mark.parametrize(
    "flags", [[0, 1, 0], [1.0, 1.0, 0.0], [False, False, True], ["True", "False", "True"]]
)
def test_flags_are_not_taken_for_the_labels_of_a_row(build, tmp_path, flags):
    rows = [{"text": "a", "label": ["0", "1"]}, {"text": "b", "label": flags}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"train.jsonl:2: label is .*, 0 or 1 for each label; expected names"):
        build(train=str(tmp_path / "train.jsonl"), kind="multi_label")

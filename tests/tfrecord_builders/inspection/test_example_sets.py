"""Reports on sets of examples count what was put into them, and training refuses splits that leak."""

import csv

import numpy as np
import pytest

from run_scripts import inspect_records
from tfrecord_builders.classification.build import ClassificationOptions, build_classification
from tfrecord_builders.inspection import example_sets
from xlnet_tf.errors import UserError
from xlnet_tf.records import example_report
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.text.packing import pack
from xlnet_tf.text.tokenizer import XLNetTokenizer

TRAIN = [("ka ren", "yes"), ("ka sol", "no"), ("ka ren", "no"), ("ka  ren", "yes"), ("ren mi du " * 9, "no")]
DEV = [("mi ren", "no"), ("ka ren", "yes"), ("ka sol", "no"), ("du du", "no")]


@pytest.fixture
def sets(tmp_path, tokenizer_file):
    for split, rows in (("train", TRAIN), ("dev", DEV)):
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    options = ClassificationOptions(
        tokenizer_file,
        str(tmp_path / "records"),
        train=str(tmp_path / "train.csv"),
        dev=str(tmp_path / "dev.csv"),
        seq_len=16,
    )
    build_classification(options)
    return example_sets.load(str(tmp_path / "records"))


def test_a_report_counts_what_the_sets_have(sets, tmp_path):
    assert list(sets) == ["train", "dev"]
    found = example_sets.report(sets)
    train, dev = found["train"], found["dev"]
    assert (train["examples"], dev["examples"]) == (5, 4)
    assert train["labels"] == {"no": 3, "yes": 2} and dev["labels"] == {"no": 3, "yes": 1}
    assert train["tokens"]["longest"] == 16 and train["full_rows"] == 1
    assert sum(train["tokens"]["histogram"]) == 5 and train["cut"]["texts cut"] == 1
    assert train["repeated"]["count"] == 2 and [one["id"] for one in train["repeated"]["first"]] == ["2", "3"]
    assert train["repeated_otherwise"]["count"] == 1 and train["shared"] is None
    assert dev["shared"]["count"] == 2 and dev["shared"]["of"] == 4
    assert dev["shared"]["first"] == [{"id": "1", "text": "ka ren"}, {"id": "2", "text": "ka sol"}]
    table = example_sets.table(found)
    assert (
        "train: repeated with another label: 2 'ka ren'" in table
        and "dev: in train, too: 1 'ka ren'" in table
    )
    assert "label no" in table and "3 (60.0%)" in table
    inspect_records.write_page(found, "records", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "data:image/png;base64," in page and "<td>ka sol</td>" in page and "$" not in page
    assert example_sets.load(f"{sets['dev'].folder}").keys() == {"dev"}


def test_labels_that_a_split_does_not_have_are_no_zeros(sets):
    found = example_sets.report(sets)
    found["dev"]["labels"] = {}  # as those of windows, which only training has
    rows = {name: cells for name, *cells in example_sets.rows(found)}
    assert rows["label no"] == ["3 (60.0%)", "-"]


def test_labels_with_dollar_signs_are_drawn_as_they_are(sets, tmp_path):
    found = example_sets.report(sets)
    found["train"]["labels"] = {"$$": 3, "$\\frac$": 2}
    example_sets.draw(found, str(tmp_path / "labels.svg"))
    assert (tmp_path / "labels.svg").stat().st_size


def test_splits_that_leak_are_refused_with_examples(sets):
    example_report.check_shared(sets, 0.5)
    with pytest.raises(UserError, match=r"2 of 4 examples of .*dev are in .*train, too, such as 1 \('ka"):
        example_report.check_shared(sets, 0.49)
    example_report.check_shared({"train": sets["train"], "dev": sets["train"]}, 0)  # on purpose


@pytest.mark.parametrize(
    ("columns", "settings", "expected"),
    [
        (
            {"label": [[1, 0], [1, 1], [0, -1]]},
            {"kind": "multi_label", "labels": ["a", "b"]},
            {"a": 2, "b": 1},
        ),
        ({"label": [0.5, 1.0, 2.0]}, {"kind": "regression", "labels": []}, {}),
        ({"label": [1, 1, -1]}, {}, {"A": 0, "B": 2}),
        ({"tags": [[0, -1, 1], [1, 1, -1], [-1, -1, -1]]}, {"labels": ["O", "B-X"]}, {"O": 1, "B-X": 3}),
        (
            {"relevance": [[0, 2], [0, -1], [1, 0]]},
            {},
            {"relevance 0": 3, "relevance 1": 1, "relevance 2": 1},
        ),
        ({"is_impossible": [0, 1, 0]}, {}, {"windows with the answer": 2, "windows without": 1}),
    ],
)
def test_labels_of_every_task_are_counted(tmp_path, tokenizer_file, columns, settings, expected):
    [(name, values)] = columns.items()
    values = np.array(values)
    dtype = "float32" if values.dtype.kind == "f" else "int16"
    sequences = 2 if expected.keys() == {"A", "B"} else 1
    writer = ExampleWriter(
        tmp_path / "train",
        task="any",
        split="train",
        tokenizer=XLNetTokenizer(tokenizer_file),
        seq_len=8,
        columns=[Column(name, dtype, values.shape[1] if values.ndim > 1 else None)],
        settings=settings,
        sequences=sequences,
    )
    with writer:
        for value in values:
            tokens = {
                key: np.tile(part, sequences) for key, part in pack([9, 10], seq_len=8)._asdict().items()
            }
            writer.write({**tokens, name: value}, {"id": "0"})
    assert example_sets.labels(ExampleSet.load(tmp_path / "train")) == expected

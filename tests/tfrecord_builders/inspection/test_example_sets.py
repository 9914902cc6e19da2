"""Reports on sets of examples count what was put into them, and training refuses splits that leak."""

import numpy as np
import pytest

from run_scripts import inspect_records
from tests.helpers.records import labelled
from tests.helpers.records.synthetic import example_writer
from tfrecord_builders.inspection import example_sets
from xlnet_tf.errors import UserError
from xlnet_tf.records import example_report
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.layout import Column
from xlnet_tf.text.packing import pack

TRAIN = [("ka ren", "yes"), ("ka sol", "no"), ("ka ren", "no"), ("ka  ren", "yes"), ("ren mi du " * 9, "no")]
DEV = [("mi ren", "no"), ("ka ren", "yes"), ("ka sol", "no"), ("du du", "no")]


@pytest.fixture
def sets(tmp_path, tokenizer_file):
    files = {
        split: labelled.table(tmp_path / f"{split}.csv", ("text", "label"), *rows)
        for split, rows in (("train", TRAIN), ("dev", DEV))
    }
    labelled.builder(tmp_path, tokenizer_file)(seq_len=16, **files)
    return example_sets.load(str(tmp_path / "records"))


def test_a_report_counts_what_the_sets_have(sets, tmp_path):
    found = example_sets.report(sets)
    assert list(sets) == ["train", "dev"] == list(found)
    train, dev = found.values()
    assert (train["examples"], dev["examples"]) == (5, 4)
    assert train["labels"] == {"no": 3, "yes": 2} and dev["labels"] == {"no": 3, "yes": 1}
    assert train["tokens"]["longest"] == 16 and train["full_rows"] == 1
    assert sum(train["tokens"]["histogram"]) == 5 and train["cut"]["texts cut"] == 1
    assert train["repeated"]["count"] == 2 and [one["id"] for one in train["repeated"]["first"]] == ["2", "3"]
    assert train["repeated_otherwise"]["count"] == 1 and train["shared"] is None
    assert dev["shared"]["count"] == 2 and dev["shared"]["of"] == 4
    assert dev["shared"]["first"] == [{"id": "1", "text": "ka ren"}, {"id": "2", "text": "ka sol"}]
    table = example_sets.table(found)
    parts = ("train: repeated with another label: 2 'ka ren'", "dev: in train, too: 1 'ka ren'", "3 (60.0%)")
    assert all(part in table for part in (*parts, "label no"))
    inspect_records.write_page(found, "records", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "data:image/png;base64," in page and "<td>ka sol</td>" in page and "$" not in page
    assert example_sets.load(f"{sets['dev'].folder}").keys() == {"dev"}
    dev["labels"] = {}  # as those of windows, which only training has: they are not zeros
    assert {name: cells for name, *cells in example_sets.rows(found)}["label no"] == ["3 (60.0%)", "-"]
    train["labels"] = {"$$": 3, "$\\frac$": 2}  # not formulas
    example_sets.draw(found, str(tmp_path / "labels.svg"))
    assert (tmp_path / "labels.svg").stat().st_size


def test_splits_that_leak_are_refused_with_examples(sets):
    example_report.check_shared(sets, 0.5)
    with pytest.raises(UserError, match=r"2 of 4 examples of .*dev are in .*train, too, such as 1 \('ka"):
        example_report.check_shared(sets, 0.49)
    example_report.check_shared({"train": sets["train"], "dev": sets["train"]}, 0)  # on purpose


MULTI_LABEL = {"kind": "multi_label", "labels": ["a", "b"]}


@pytest.mark.parametrize(
    ("columns", "settings", "expected"),
    [
        ({"label": [[1, 0], [1, 1], [0, -1]]}, MULTI_LABEL, {"a": 2, "b": 1}),
        ({"label": [0.5, 1.0, 2.0]}, {"kind": "regression", "labels": []}, {}),
        ({"label": [1, 1, -1]}, {}, {"A": 0, "B": 2}),
        ({"tags": [[0, -1, 1], [1, 1, -1], [-1, -1, -1]]}, {"labels": ["O", "B-X"]}, {"O": 1, "B-X": 3}),
        ({"relevance": [[0, 2], [0, -1], [1, 0]]}, {}, {f"relevance {n}": 3 - 2 * (n > 0) for n in range(3)}),
        ({"is_impossible": [0, 1, 0]}, {}, {"windows with the answer": 2, "windows without": 1}),
    ],
)
def test_labels_of_every_task_are_counted(tmp_path, tokenizer, columns, settings, expected):
    [(name, values)] = columns.items()
    values = np.array(values)
    dtype = "float32" if values.dtype.kind == "f" else "int16"
    sequences = 2 if expected.keys() == {"A", "B"} else 1
    tokens = {key: np.tile(part, sequences) for key, part in pack([9, 10], seq_len=8)._asdict().items()}
    options = {"columns": [Column(name, dtype, values.shape[1] if values.ndim > 1 else None)]}
    options |= {"settings": settings, "sequences": sequences}
    with example_writer(tmp_path / "train", tokenizer, **options) as writer:
        for value in values:
            writer.write({**tokens, name: value}, {"id": "0"})
    assert example_sets.labels(ExampleSet.load(tmp_path / "train")) == expected

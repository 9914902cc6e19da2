"""Columnar files: names of classes for their numbers, values of any type, splits by the files' names."""

import datetime
import decimal
import json

import pyarrow
import pyarrow.parquet
import pytest

from tfrecord_builders.common import columnar
from tfrecord_builders.common.tables import TableFormat, infer_format, read_table
from xlnet_tf.errors import UserError

TEXT = {"_type": "Value", "dtype": "string"}


def classes(*names):
    return {"_type": "ClassLabel", "names": list(names)}


def read(folder, columns, features=None):
    """Writes a Parquet file, with the features that `datasets` would note, and reads its rows."""
    noted = json.dumps({"info": {"features": features}})
    table = pyarrow.table(columns).replace_schema_metadata({"huggingface": noted})
    pyarrow.parquet.write_table(table, folder / "rows.parquet")
    return list(read_table(folder / "rows.parquet", TableFormat("parquet")))


def test_names_stand_for_numbers_at_any_depth():
    old = {"_type": "Sequence", "feature": {"kind": classes("x", "y"), "text": TEXT}}
    new = {"_type": "List", "feature": {"kind": classes("x", "y")}}
    features = {"feature": classes("a", "b"), "old": old, "new": new}  # the first is a column of that name
    row = {"feature": 1, "old": {"kind": [0, 1], "text": ["t", "u"]}, "new": [{"kind": 1}, {"kind": None}]}
    assert columnar.with_names(row | {"unknown": {"kind": 3}}, features) == {
        "feature": "b",
        "old": {"kind": ["x", "y"], "text": ["t", "u"]},
        "new": [{"kind": "y"}, {"kind": None}],
        "unknown": {"kind": 3},
    }
    with pytest.raises(UserError, match=r"class 2 has no name: there are 2 \(a, b\)"):
        columnar.with_names({"feature": 2}, features)


@pytest.mark.parametrize(
    "names, splits",
    [
        ("train-00000-of-00001-b4a2d9 test-00000-of-00001-07ff1e", "test, train"),
        ("glue-train glue-validation", "train, validation"),
        ("data_dev data_train", "dev, train"),
        ("train-00000-of-00002-b4a2d9 train-00001-of-00002-07ff1e", None),
        ("latest contest", None),
    ],
)
def test_splits_are_known_by_their_names(tmp_path, names, splits):
    for name in names.split():
        pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / f"{name}.parquet")
    rows = read_table(tmp_path, infer_format(tmp_path))
    if splits:
        with pytest.raises(UserError, match=f"files of several splits \\({splits}\\)"):
            list(rows)
    else:
        assert [row["text"] for row in rows] == ["a", "a"]


def test_values_of_any_type_are_plain_texts(tmp_path):
    values = {
        "text": [b"a fine film", None],
        "words": [[b"a", None], []],
        "label": [float("nan"), 2.0],
        "rating": [decimal.Decimal("4.50"), None],
        "day": [datetime.date(2024, 2, 29), None],
        "both": [{"en": b"yes", "when": datetime.date(2024, 2, 29)}, {"en": None, "when": None}],
    }
    first, second = read(tmp_path, values)
    assert first.values == {
        "text": "a fine film",
        "words": ["a", ""],
        "label": "",
        "rating": "4.50",
        "day": "2024-02-29",
        "both": '{"en": "yes", "when": "2024-02-29"}',
        "both.en": "yes",
        "both.when": "2024-02-29",
    }
    assert second["text"] == "" and second["label"] == "2.0" and second["words"] == []
    [row] = read(tmp_path, {"text": [b"caf\xe9"]})
    with pytest.raises(UserError, match=r"rows.parquet, row 1: 'text' is not UTF-8 \(byte 0xe9\)"):
        row.text("text")


def test_the_row_that_cannot_be_decoded_is_named(tmp_path):
    """Also among others of its batch, and in a column that has names for numbers; -1 and null have none."""
    columns = {"day": pyarrow.array([0, 1, 3_000_000], pyarrow.date32()), "label": [0, 2, 1]}
    rows = read(tmp_path, columns, {"label": classes("a", "b")})
    for row in rows:
        with pytest.raises(UserError, match="rows.parquet, row 3: 'day' cannot be read"):
            row.text("day")
    with pytest.raises(UserError, match="rows.parquet, row 2: 'label' class 2 has no name"):
        rows[0].text("label")
    rows = read(tmp_path, {"label": [1, -1, None]}, {"label": classes("a", "b")})
    assert [row["label"] for row in rows] == ["b", "", ""]

"""What labelling tools write becomes the rows and entities that the builders read."""

import json

import pytest

from tests.tfrecord_builders.common.test_tables import write
from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.common.tables import infer_format, read_table
from tfrecord_builders.tagging.data import read_sentences
from xlnet_tf.errors import UserError

TEXT = "😀 Ada met Bob."
SPAN = {"start": 3, "end": 6, "text": "Ada", "labels": ["PER"]}  # the emoji is two of a browser's units


def result(value, name="label", kind="labels"):
    return {"from_name": name, "to_name": "text", "type": kind, "value": value}


def task(*annotations, text=TEXT, **others):
    done = [{"id": 5, "result": results, "was_cancelled": False} for results in annotations]
    return {"id": 1, "data": {"text": text}, "annotations": done, **others}


def entities(tmp_path, rows, name="a.json"):
    lines = [json.dumps(row) for row in rows]
    text = f"[{','.join(lines)}]" if name.endswith(".json") else "\n".join(lines)
    return [row.entities for row in read_sentences(write(tmp_path / name, text))]


def test_both_exports_of_label_studio_give_the_same_entities(tmp_path):
    full = [task([result(SPAN)]), task([], text="Nobody."), task(text="Not yet.")]
    small = [
        {"text": TEXT, "label": [SPAN], "annotation_id": 5},
        {"text": "Nobody.", "annotation_id": 6},
        {"text": "Not yet."},
    ]
    assert entities(tmp_path, full) == entities(tmp_path, small) == [[(2, 5, "PER")], [], None]


@pytest.mark.parametrize("column", ["label", "labels"])
def test_entities_of_doccano(tmp_path, column):
    rows = [{"id": 1, "text": TEXT, column: [[2, 5, "PER"]]}, {"text": "Nobody.", column: []}]
    assert entities(tmp_path, rows, "a.jsonl") == [[(2, 5, "PER")], []]
    with_relations = {"id": 0, "start_offset": 2, "end_offset": 5, "label": "PER"}
    assert entities(tmp_path, [{"text": TEXT, "entities": [with_relations]}], "a.jsonl") == [[(2, 5, "PER")]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"text": TEXT, "label": [[2, 5]]},
            r"entity 0 is \[2, 5\], expected doccano's \[start, end, label\]",
        ),
        (
            {"text": TEXT, "label": [{**SPAN, "text": "Eve"}]},
            "is 'Eve' by Label Studio's text, but characters",
        ),
        ({"text": TEXT, "label": [{**SPAN, "labels": ["A", "B"]}]}, "Label Studio's labels .*list of one"),
        ({"text": TEXT, "label": [[2, 99, "PER"]]}, "is characters 2 to 99 of a text of 14"),
    ],
)
def test_broken_entities_are_named_in_the_words_of_the_tool(tmp_path, row, message):
    with pytest.raises(UserError, match=message):
        entities(tmp_path, [row])


def test_labels_of_label_studio_replace_a_column_of_the_data_of_the_same_name(tmp_path):
    tasks = [task([result(SPAN)]), task([], text="Nobody.")]
    for each in tasks:
        each["data"]["label"] = "old"
    assert entities(tmp_path, tasks) == [[(2, 5, "PER")], []]


def test_units_of_browsers_count_where_both_readings_fit(tmp_path):
    span = {"start": 4, "end": 6, "text": "aa", "labels": ["X"]}
    assert entities(tmp_path, [{"text": "😀 aaaaa", "label": [span]}]) == [[(3, 5, "X")]]


def rows(path):
    return [dict(row.values) for row in read_table(path, infer_format(path))]


def test_choices_of_label_studio_are_labels_of_the_text(tmp_path):
    def choices(*values):
        return result({"choices": list(values)}, "mood", "choices")

    tasks = [task([choices("good")], text="a"), task([choices("good", "long")], text="b")]
    full = rows(write(tmp_path / "a.json", json.dumps(tasks)))
    assert [(row["text"], row["mood"]) for row in full] == [("a", "good"), ("b", ["good", "long"])]


def test_a_cancelled_annotation_does_not_count(tmp_path):
    cancelled = {"result": [result({"choices": ["bad"]}, "mood")], "was_cancelled": True}
    tasks = [{"id": 1, "data": {"text": "a"}, "annotations": [cancelled]}]
    [row] = rows(write(tmp_path / "a.json", json.dumps(tasks)))
    assert row == {"id": "1", "text": "a"}


def test_json_may_also_be_lines(tmp_path):
    assert rows(write(tmp_path / "a.json", '{"text": "a"}\n{"text": "b"}')) == [{"text": "a"}, {"text": "b"}]
    with pytest.raises(UserError, match="expected a list of objects, such as an export of Label Studio"):
        rows(write(tmp_path / "b.json", "[1, 2]"))


def test_lines_of_fasttext(tmp_path):
    path = write(tmp_path / "train.txt", "__label__pos  A fine film .\n\n__label__neg __label__long Dull .\n")
    assert rows(path) == [
        {"text": "A fine film .", "label": "pos"},
        {"text": "Dull .", "label": ["neg", "long"]},
    ]
    with pytest.raises(UserError, match="b.txt:2: the line begins with 'A fine', expected fastText"):
        rows(write(tmp_path / "b.txt", "__label__pos a\nA fine"))


def build(tmp_path, tokenizer_file, path, **options):
    options = ClassificationOptions(str(tokenizer_file), str(tmp_path / "sets"), train=str(path), **options)
    return build_classification(options)["train"]


def test_a_label_may_be_a_list_of_one_as_in_doccano(tmp_path, tokenizer_file):
    lines = [{"text": f"ka {number}", "label": [f"l{number % 2}"]} for number in range(4)]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert build(tmp_path, tokenizer_file, path).arrays()["label"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (["a", "b"], "several labels in column 'label' .a, b.: give --kind=multi_label"),
        ([[0, 2, "PER"]], "entities are for the builder tagging"),
    ],
)
def test_other_lists_are_not_one_label(tmp_path, tokenizer_file, label, message):
    path = write(tmp_path / "a.jsonl", json.dumps({"text": "ka", "label": label}))
    with pytest.raises(UserError, match=message):
        build(tmp_path, tokenizer_file, path)

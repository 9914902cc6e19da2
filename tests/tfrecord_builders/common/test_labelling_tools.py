"""What labelling tools write becomes the rows and entities that the builders read."""

import json

import pytest

from tests.helpers.records import builders
from tests.tfrecord_builders.common.test_tables import write
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
    """Not a column of the data with the labels' name; units of browsers count where both readings fit."""
    full = [task([result(SPAN)]), task([], text="Nobody."), task(text="Not yet.")]
    full[0]["data"]["label"] = full[1]["data"]["label"] = "old"
    small = [
        {"text": TEXT, "label": [SPAN], "annotation_id": 5},
        {"text": "Nobody.", "annotation_id": 6},
        {"text": "Not yet."},
    ]
    assert entities(tmp_path, full) == entities(tmp_path, small) == [[(2, 5, "PER")], [], None]
    span = {"start": 4, "end": 6, "text": "aa", "labels": ["X"]}
    assert entities(tmp_path, [{"text": "😀 aaaaa", "label": [span]}]) == [[(3, 5, "X")]]


@pytest.mark.parametrize("column", ["label", "labels"])
def test_entities_of_doccano(tmp_path, column):
    rows = [{"id": 1, "text": TEXT, column: [[2, 5, "PER"]]}, {"text": "Nobody.", column: []}]
    assert entities(tmp_path, rows, "a.jsonl") == [[(2, 5, "PER")], []]
    with_relations = {"id": 0, "start_offset": 2, "end_offset": 5, "label": "PER"}
    assert entities(tmp_path, [{"text": TEXT, "entities": [with_relations]}], "a.jsonl") == [[(2, 5, "PER")]]


def test_broken_entities_are_named_in_the_words_of_the_tool(tmp_path):
    for label, message in (
        ([2, 5], r"entity 0 is \[2, 5\], expected doccano's \[start, end, label\]"),
        ({**SPAN, "text": "Eve"}, "is 'Eve' by Label Studio's text, but characters"),
        ({**SPAN, "labels": ["A", "B"]}, "Label Studio's labels .*list of one"),
        ([2, 99, "PER"], "is characters 2 to 99 of a text of 14"),
    ):
        with pytest.raises(UserError, match=message):
            entities(tmp_path, [{"text": TEXT, "label": [label]}])


def rows(path):
    return [dict(row.values) for row in read_table(path, infer_format(path))]


def test_choices_of_label_studio_are_labels_of_the_text(tmp_path):
    """One that was cancelled does not count."""

    def choices(*values):
        return [result({"choices": list(values)}, "mood", "choices")]

    cancelled = {"result": choices("bad"), "was_cancelled": True}
    tasks = [task(choices("good"), text="a"), task(choices("good", "long"), text="b")]
    tasks.append({"id": 1, "data": {"text": "c"}, "annotations": [cancelled]})
    one, two, none = rows(write(tmp_path / "a.json", json.dumps(tasks)))
    assert (one["mood"], two["mood"]) == ("good", ["good", "long"]) and none == {"id": "1", "text": "c"}


def test_lines_of_json_and_of_fasttext(tmp_path):
    assert rows(write(tmp_path / "a.json", '{"text": "a"}\n{"text": "b"}')) == [{"text": "a"}, {"text": "b"}]
    with pytest.raises(UserError, match="expected a list of objects, such as an export of Label Studio"):
        rows(write(tmp_path / "b.json", "[1, 2]"))
    path = write(tmp_path / "train.txt", "__label__pos  A fine film .\n\n__label__neg __label__long Dull .\n")
    texts = {"A fine film .": "pos", "Dull .": ["neg", "long"]}
    assert rows(path) == [{"text": text, "label": label} for text, label in texts.items()]
    with pytest.raises(UserError, match="b.txt:2: the line begins with 'A fine', expected fastText"):
        rows(write(tmp_path / "b.txt", "__label__pos a\nA fine"))


def test_a_label_may_be_a_list_of_one_as_in_doccano(tmp_path, tokenizer_file):
    lines = [{"text": f"ka {number}", "label": [f"l{number % 2}"]} for number in range(4)]
    train = builders.build("classification", tmp_path, tokenizer_file, train=lines)["train"]
    assert train.arrays()["label"].tolist() == [0, 1, 0, 1]

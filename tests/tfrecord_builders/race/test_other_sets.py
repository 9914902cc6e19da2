"""Questions with different numbers of options, without a context, and as ARC has them."""

import numpy as np
import pytest

from tests.helpers.records.builders import OWN
from tests.tfrecord_builders.race.test_build import build, write_jsonl
from tfrecord_builders.race.questions import read_questions
from xlnet_tf.errors import UserError
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID

DISTRIBUTED = {
    "id": "a",
    "question": {"stem": "Why ?", "choices": [{"text": t, "label": n} for t, n in zip("xyz", "123")]},
    "answerKey": "2",
}
ON_HUB = {
    "id": "b",
    "question": "Who ?",
    "choices": {"text": list("vwxyz"), "label": list("ABCDE")},
    "answerKey": "E",
}


def read(tmp_path, *rows):
    return list(read_questions(write_jsonl(tmp_path / "a.jsonl", rows), pytest.fail))


def test_rows_of_arc(tmp_path):
    first, second = read(tmp_path, DISTRIBUTED, ON_HUB)
    assert first[:5] == ("a", "", "Why ?", ["x", "y", "z"], 1)
    assert second[:5] == ("b", "", "Who ?", list("vwxyz"), 4)
    with pytest.raises(UserError, match="a.jsonl:1: the answer is '4', expected a label: 1, 2, 3"):
        read(tmp_path, {**DISTRIBUTED, "answerKey": "4"})
    with pytest.raises(UserError, match="expected a list of texts, or of ARC's objects"):
        read(tmp_path, {**ON_HUB, "choices": [{"text": "x"}]})


def test_missing_options_are_padding(tmp_path, tokenizer_file):
    rows = [OWN, {**OWN, "options": [*OWN["options"], "mi", "to"]}]
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    examples = build(tmp_path, tokenizer_file, train=[train])["train"]
    assert examples.settings["num_choices"] == 5
    assert examples.statistics["questions with fewer than 5 options"] == 1
    ids = examples.arrays()["input_ids"].reshape(2, 5, 48)
    assert (ids[..., -1] == CLS_ID).tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert (ids[0, 3:] == PAD_ID).all()
    alone = build(tmp_path / "alone", tokenizer_file, train=[write_jsonl(tmp_path / "one.jsonl", [OWN])])
    assert np.array_equal(alone["train"].arrays()["input_ids"].reshape(3, 48), ids[0, :3])


def test_without_a_context_the_question_is_all(tmp_path, tokenizer_file):
    rows = [{"question": "Ka ?", "options": ["ren", "mi"], "answer": 0}]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    ids = build(tmp_path, tokenizer_file, train=[path], context_column="")["train"].arrays()["input_ids"]
    tokens = [token for token in ids.reshape(2, 48)[0] if token != PAD_ID]
    assert tokens[0] == SEP_ID and tokens[-2:] == [SEP_ID, CLS_ID] and len(tokens) > 4
    with pytest.raises(UserError, match="there is no column 'context'"):
        build(tmp_path, tokenizer_file, train=[path])

"""Multiple-choice records: an option's sequence is about that option alone; RACE's, ARC's and own files."""

import gzip
import json

import numpy as np
import pytest

from tests.helpers.records.builders import ARTICLE, OWN, build, jsonl
from tfrecord_builders.race.build import RaceOptions, join_option, option_sequences
from tfrecord_builders.race.questions import read_questions
from xlnet_tf.errors import UserError
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID


@pytest.mark.parametrize(
    ("context", "question", "options", "sizes"),
    [
        ("Ka tomi ren.", "Sol du ?", ["tomi", "velan qui", "bor", "ren sol"], (48, 24)),
        ("ka tomi ren sol " * 20, "du velan " * 20, ["qui", "bor tomi"], (32, 10)),
    ],
)
def test_the_sequence_of_an_option_has_that_option_only(tokenizer, context, question, options, sizes):
    """The original put all options before into each. A context is cut at its end, a question at its start."""
    seq_len, max_qa_len = sizes
    joined = [join_option(question, option) for option in options]
    ids = tokenizer.encode_rows([context, *joined], "texts")
    columns = option_sequences(ids[0], ids[1:], seq_len, max_qa_len)
    for text, sequence in zip(joined, columns["input_ids"].reshape(len(options), seq_len), strict=True):
        answer = tokenizer.encode(text)[-max_qa_len:]
        kept = tokenizer.encode(context)[: seq_len - 3 - len(answer)]
        tokens = [*kept, SEP_ID, *answer, SEP_ID, CLS_ID]
        assert sequence.tolist() == [PAD_ID] * (seq_len - len(tokens)) + tokens


def test_the_option_fills_the_blanks_or_follows():
    for text, joined in {"Why ?": "Why ? X", "He is ____ .": "He is X .", "_ has _ .": "X has X ."}.items():
        assert join_option(text, "X") == joined
    assert join_option("_ !", r"\1 \g<0>") == r"\1 \g<0> !"


def test_folders_of_the_original_equal_jsonl(tmp_path):
    articles = (ARTICLE, {**ARTICLE, "id": "middle3.txt"})
    for each, name in zip(articles, ("high/7.txt", "middle/3.txt")):
        path = tmp_path / "RACE [1]" / "dev" / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(each))
    packed = tmp_path / "race.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(map(json.dumps, articles)).encode()))
    found, expected = (
        [question._replace(location="") for question in read_questions(path, pytest.fail)]
        for path in (tmp_path / "RACE [1]/dev", packed)
    )
    assert found == expected
    expected = [("high7-0", "high", 1), ("high7-1", "high", 3), ("middle3-0", "middle", 1)]
    assert [(q.id, q.level, q.answer) for q in found] == [*expected, ("middle3-1", "middle", 3)]


def test_rows_of_arc(tmp_path):
    def read(*rows):
        return list(read_questions(jsonl(tmp_path / "a.jsonl", rows), pytest.fail))

    choices = [{"text": text, "label": label} for text, label in zip("xyz", "123")]
    arc = {"id": "a", "question": {"stem": "Why ?", "choices": choices}, "answerKey": "2"}
    choices = {"text": list("vwxyz"), "label": list("ABCDE")}
    on_hub = {"id": "b", "question": "Who ?", "choices": choices, "answerKey": "E"}
    first, second = read(arc, on_hub)
    assert first[:5] == ("a", "", "Why ?", ["x", "y", "z"], 1)
    assert second[:5] == ("b", "", "Who ?", list("vwxyz"), 4)
    for row, message in (
        ({**arc, "answerKey": "4"}, "a.jsonl:1: the answer is '4', expected a label: 1, 2, 3"),
        ({**on_hub, "choices": [{"text": "x"}]}, "expected a list of texts, or of ARC's objects"),
    ):
        with pytest.raises(UserError, match=message):
            read(row)


def test_answers_are_letters_numbers_or_none(tmp_path, tokenizer_file):
    unanswered = {name: value for name, value in OWN.items() if name != "answer"}
    rows = [{**OWN, "id": None}, {**OWN, "answer": "A", "id": "x"}, unanswered]
    rows += [{**OWN, "answer": answer} for answer in (1.0, "2.0", -1, "-1.0")]
    test = build("race", tmp_path, tokenizer_file, test=rows)["test"]
    assert list(test.arrays()["label"]) == [2, 0, -1, 1, 2, -1, -1]
    file = tmp_path / "test.jsonl"
    assert [row["id"] for row in test.sidecar()][:3] == [f"{file}:1", "x", f"{file}:3"]


def test_what_is_cut_and_missing_options_are_counted(tmp_path, tokenizer, tokenizer_file):
    """Of 48 tokens 3 are special; the option takes what it needs, at most 24. Missing options are padding."""
    short = {"question": "ka", "options": ["to", "mi", "to"], "answer": 0}
    length = len(tokenizer.encode("ka to"))
    words = "ka " * 60
    fits = next(words[: 3 * n] for n in range(60) if len(tokenizer.encode(words[: 3 * n])) == 45 - length)
    rows = [{"context": fits, **short}, {"context": f"{fits} ka", **short}, {**OWN, "question": words}]
    rows.append({**OWN, "options": [*OWN["options"], "mi", "to"]})
    train = build("race", tmp_path, tokenizer_file, train=rows)["train"]
    counts = train.statistics
    assert counts["questions with their text cut"] == counts["questions with an option cut"] == 1
    assert counts["questions with fewer than 5 options"] == 3 and train.settings["num_choices"] == 5
    ids = train.arrays()["input_ids"].reshape(4, 5, 48)
    assert (ids[..., -1] == CLS_ID).tolist() == [[True] * 3 + [False] * 2] * 3 + [[True] * 5]
    assert (ids[:3, 3:] == PAD_ID).all()
    alone = build("race", tmp_path, tokenizer_file, train=rows[:2], overwrite=True)["train"]
    assert np.array_equal(alone.arrays()["input_ids"].reshape(2, 3, 48), ids[:2, :3])
    assert alone.statistics["pieces of a text and an option, median"] == 45


def test_empty_texts_are_skipped_and_counted(tmp_path, tokenizer_file):
    bare = {**OWN, "options": [], "answer": ""}
    rows = [OWN, {**OWN, "context": " "}, {**OWN, "options": ["a", "", "b"]}, bare]
    train = build("race", tmp_path, tokenizer_file, train=rows)["train"]
    assert train.records == 1 and train.settings["num_choices"] == 3
    assert train.skipped == {
        reason: {"count": 1, "places": [f"{tmp_path}/train.jsonl:{line}"]}
        for line, reason in enumerate(("empty context", "empty option", "no options"), 2)
    }
    with pytest.raises(UserError, match=r"no questions in .*train.jsonl \(2 skipped\): check the files"):
        build("race", tmp_path, tokenizer_file, train=[bare, bare])


def test_without_a_context_the_question_is_all(tmp_path, tokenizer_file):
    rows = [{"question": "Ka ?", "options": ["ren", "mi"], "answer": 0}]
    train = build("race", tmp_path, tokenizer_file, train=rows, context_column="")["train"]
    tokens = [token for token in train.arrays()["input_ids"].reshape(2, 48)[0] if token != PAD_ID]
    assert tokens[0] == SEP_ID and tokens[-2:] == [SEP_ID, CLS_ID] and len(tokens) > 4
    with pytest.raises(UserError, match="there is no column 'context'"):
        build("race", tmp_path, tokenizer_file, train=rows)


def test_a_key_given_twice_is_refused(tmp_path):
    """In a table, and in a file as RACE has them."""
    (tmp_path / "dev" / "high").mkdir(parents=True)
    for path, source in ((tmp_path / "a.jsonl",) * 2, (tmp_path / "dev/high/1.txt", tmp_path / "dev")):
        path.write_text(json.dumps(ARTICLE).replace('"id"', '"article": "Mi.", "id"'))
        with pytest.raises(UserError, match=rf'{path.name}:1: "article" is given twice: keep one'):
            list(read_questions(source, pytest.fail))


def test_empty_paths_and_folders_are_refused(tmp_path, tokenizer_file):
    with pytest.raises(UserError, match="--dev is 'a.jsonl,', with an empty path: remove a comma"):
        RaceOptions(str(tokenizer_file), str(tmp_path), dev=["a.jsonl", ""]).check()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no .txt files"):
        build("race", tmp_path, tokenizer_file, train=str(tmp_path / "empty"))

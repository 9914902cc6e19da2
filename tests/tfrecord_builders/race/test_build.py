"""Multiple-choice records: each option's sequence is about that option alone; RACE's files and one's own."""

import gzip
import json

import numpy as np
import pytest

from tests.helpers.records.builders import ARTICLE, OWN
from tfrecord_builders.race.build import RaceOptions, build_race, join_option, option_sequences
from tfrecord_builders.race.questions import read_questions
from xlnet_tf.errors import UserError
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


def write_jsonl(path, objects):
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return str(path)


def sequences(tokenizer, context, question, options, seq_len, max_qa_len):
    ids = tokenizer.encode_rows([context, *(join_option(question, option) for option in options)], "texts")
    return option_sequences(ids[0], ids[1:], seq_len, max_qa_len)


def segments(sequence):
    """Splits a packed sequence at its separators: [context, question and option]."""
    tokens = [int(token) for token in sequence if token != PAD_ID]
    assert tokens[-2:] == [SEP_ID, CLS_ID]
    first = tokens.index(SEP_ID)
    return tokens[:first], tokens[first + 1 : -2]


@pytest.fixture(scope="module")
def tokenizer(tokenizer_file):
    return XLNetTokenizer(tokenizer_file)


def build(tmp_path, tokenizer_file, **inputs):
    options = {"seq_len": 48, "max_qa_len": 24, **inputs}
    return build_race(RaceOptions(str(tokenizer_file), str(tmp_path / "records"), **options))


def test_the_sequence_of_an_option_has_that_option_only(tokenizer):
    """The original's list alias put all options before into each sequence."""
    options = ["tomi", "velan qui", "bor", "ren sol"]
    columns = sequences(tokenizer, "Ka tomi ren.", "Sol du ?", options, 48, 24)
    for option, sequence in zip(options, columns["input_ids"].reshape(4, 48), strict=True):
        context, answer = segments(sequence)
        assert context == tokenizer.encode("Ka tomi ren.")
        assert answer == tokenizer.encode(f"Sol du ? {option}")
        assert list(sequence).count(SEP_ID) == 2


def test_the_context_is_cut_at_its_end_and_the_question_at_its_start(tokenizer):
    columns = sequences(tokenizer, "ka tomi ren sol " * 20, "du velan " * 20, ["qui", "bor tomi"], 32, 10)
    for option, sequence in zip(["qui", "bor tomi"], columns["input_ids"].reshape(2, 32), strict=True):
        context, answer = segments(sequence)
        assert PAD_ID not in sequence
        assert answer == tokenizer.encode("du velan " * 20 + option)[-10:]
        assert context == tokenizer.encode("ka tomi ren sol " * 20)[:19]


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("Why ?", "Why ? X"),
        ("He is _ .", "He is X ."),
        ("He is ____ .", "He is X ."),
        ("_ has _ .", "X has X ."),
    ],
)
def test_the_option_fills_the_blanks_or_follows(text, joined):
    assert join_option(text, "X") == joined


def test_an_option_is_not_read_as_a_pattern():
    assert join_option("_ !", r"\1 \g<0>") == r"\1 \g<0> !"


def test_folders_of_the_original_equal_jsonl(tmp_path):
    middle = {**ARTICLE, "id": "middle3.txt"}
    for each in (ARTICLE, middle):
        folder = tmp_path / "RACE [1]" / "dev" / each["id"].rstrip("0123456789.tx")
        folder.mkdir(parents=True)
        (folder / each["id"].removeprefix("high").removeprefix("middle")).write_text(json.dumps(each))
    packed = tmp_path / "race.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(json.dumps(each) for each in (ARTICLE, middle)).encode()))

    found = [q._replace(location="") for q in read_questions(tmp_path / "RACE [1]/dev", pytest.fail)]
    assert found == [q._replace(location="") for q in read_questions(packed, pytest.fail)]
    assert [(q.id, q.level, q.answer) for q in found] == [
        ("high7-0", "high", 1),
        ("high7-1", "high", 3),
        ("middle3-0", "middle", 1),
        ("middle3-1", "middle", 3),
    ]


def test_records_and_sidecar(tmp_path, tokenizer_file):
    train = write_jsonl(tmp_path / "train.jsonl", [ARTICLE])
    sets = build(tmp_path, tokenizer_file, train=[train], dev=[train])
    assert list(sets) == ["train", "dev"]
    arrays = sets["dev"].arrays()
    assert arrays["input_ids"].shape == (2, 4 * 48)
    assert list(arrays["label"]) == [1, 3]
    assert list(sets["dev"].sidecar())[0] == {
        "id": "high7-0",
        "level": "high",
        "question": "Ka _ ren ?",
        "options": ARTICLE["options"][0],
    }
    assert sets["train"].sequences == sets["train"].settings["num_choices"] == 4


def test_own_questions_with_three_options_letters_numbers_and_no_answer(tmp_path, tokenizer_file):
    rows = [{**OWN, "id": None}, {**OWN, "answer": "A", "id": "x"}]
    rows.append({k: v for k, v in OWN.items() if k != "answer"})
    rows += [{**OWN, "answer": answer} for answer in (1.0, "2.0", -1, "-1.0")]
    test = write_jsonl(tmp_path / "own.jsonl", rows)
    example_set = build(tmp_path, tokenizer_file, test=[test])["test"]
    assert list(example_set.arrays()["label"]) == [2, 0, -1, 1, 2, -1, -1]
    assert [row["id"] for row in example_set.sidecar()][:3] == [f"{test}:1", "x", f"{test}:3"]


def test_articles_without_answers_can_be_predicted(tmp_path, tokenizer_file):
    test = write_jsonl(tmp_path / "a.jsonl", [{k: v for k, v in ARTICLE.items() if k != "answers"}])
    example_set = build(tmp_path, tokenizer_file, test=[test])["test"]
    assert list(example_set.arrays()["label"]) == [-1, -1] and not example_set.settings["answered"]


def test_what_is_cut_is_counted(tmp_path, tokenizer_file):
    """Of 48 tokens 3 are special; the option takes what it needs, at most 24."""
    tokenizer = XLNetTokenizer(tokenizer_file)
    short = {"question": "ka", "options": ["to", "mi", "to"], "answer": 0}
    length = len(tokenizer.encode("ka to"))
    assert length == len(tokenizer.encode("ka mi"))
    words = "ka " * 60
    fits = next(words[: 3 * n] for n in range(60) if len(tokenizer.encode(words[: 3 * n])) == 45 - length)
    rows = [{"context": fits, **short}, {"context": f"{fits} ka", **short}, {**OWN, "question": words}]
    path = write_jsonl(tmp_path / "own.jsonl", rows)
    statistics = build(tmp_path, tokenizer_file, train=[path])["train"].statistics
    assert statistics["questions with their text cut"] == 1
    assert statistics["questions with an option cut"] == 1
    assert statistics["pieces of a text and an option, median"] == 46


def test_empty_texts_are_skipped_and_counted(tmp_path, tokenizer_file):
    rows = [OWN, {**OWN, "context": " "}, {**OWN, "options": ["a", "", "b"]}]
    path = write_jsonl(tmp_path / "own.jsonl", rows)
    example_set = build(tmp_path, tokenizer_file, train=[path])["train"]
    assert example_set.records == 1
    assert example_set.skipped == {
        "empty context": {"count": 1, "places": [f"{path}:2"]},
        "empty option": {"count": 1, "places": [f"{path}:3"]},
    }


def test_a_key_given_twice_is_refused(tmp_path, tokenizer_file):
    """In a table, and in a file as RACE has them."""
    twice = json.dumps(ARTICLE).replace('"id"', '"article": "Mi.", "id"')
    folder = tmp_path / "dev" / "high"
    folder.mkdir(parents=True)
    for path, source in ((tmp_path / "a.jsonl", tmp_path / "a.jsonl"), (folder / "1.txt", folder.parent)):
        path.write_text(twice)
        with pytest.raises(UserError, match=rf'{path.name}:1: "article" is given twice: keep one'):
            build(tmp_path, tokenizer_file, dev=[str(source)])


def test_impossible_options_are_refused(tmp_path, tokenizer_file):
    path = write_jsonl(tmp_path / "own.jsonl", [OWN])
    with pytest.raises(UserError, match=f"--dev is '{path},', with an empty path: remove a comma"):
        build(tmp_path, tokenizer_file, dev=[path, ""])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no .txt files"):
        build(tmp_path, tokenizer_file, train=[str(tmp_path / "empty")])


def test_the_real_development_set(tmp_path, shared):
    """1,436 questions of middle schools, as the data set's paper counts them."""
    sets = build_race(
        RaceOptions(
            str(shared("data/xlnet_cased/spiece.model")),
            str(tmp_path),
            dev=[str(shared("data/race/race_dev_middle.jsonl.gz"))],
            seq_len=256,
            max_qa_len=64,
        )
    )
    example_set = sets["dev"]
    assert example_set.records == 1436 and not example_set.skipped
    arrays = example_set.arrays()
    assert np.bincount(arrays["label"], minlength=4).sum() == 1436
    sequences = arrays["input_ids"].reshape(-1, 256)
    assert (sequences[:, -1] == CLS_ID).all() and ((sequences == SEP_ID).sum(axis=1) == 2).all()
    assert {row["level"] for row in example_set.sidecar()} == {"middle"}


def test_questions_without_options_are_skipped(tmp_path, tokenizer_file):
    bare = {**OWN, "options": [], "answer": ""}
    path = write_jsonl(tmp_path / "own.jsonl", [bare, OWN])
    examples = build(tmp_path, tokenizer_file, train=[path])["train"]
    assert examples.records == 1 and examples.settings["num_choices"] == 3
    assert examples.skipped == {"no options": {"count": 1, "places": [f"{path}:1"]}}
    write_jsonl(tmp_path / "own.jsonl", [bare, bare])
    with pytest.raises(UserError, match=r"no questions in .*own.jsonl \(2 skipped\): check the files"):
        build(tmp_path, tokenizer_file, train=[path])

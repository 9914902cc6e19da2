"""Questions as they are read: SQuAD's json and tables; answers are found in their passages."""

import gzip
import json

import pytest

from tests.helpers.records.builders import jsonl, question
from tests.helpers.records.builders import squad_file as write
from tfrecord_builders.squad import data as squad_data
from tfrecord_builders.squad.data import SquadAnswer, locate, read_squad
from xlnet_tf.errors import UserError


def test_answers_are_found_where_they_are_nearest():
    for begin, nearest in {0: 0, -5: 0, 3: 3, 4: 3, 5: 6, 100: 6}.items():
        assert locate("ka ka ka ka", SquadAnswer("ka ka", begin)) == (nearest, nearest + 5)
        assert locate("ka to", SquadAnswer("mi", begin)) is None


def test_answers_may_have_other_white_space_than_the_passage():
    passage = "to\tmi\r\nren  sol, du 5 km ka to. A \u00a0 ka \nto"
    for answer, begin, found in (
        ("mi ren", 4, "mi\r\nren"),
        ("ren sol", 8, "ren  sol"),
        ("sol,\tdu", 13, "sol, du"),
        ("to mi\nren", 0, "to\tmi\r\nren"),
        ("mi  ren", None, "mi\r\nren"),
        ("5km", 0, "5 km"),
        ("sol ,du", 0, "sol, du"),
        ("ka to", 30, "ka to"),  # as it is written, though another is nearer
        ("ka to", 36, "ka \nto"),  # unless that is where it is said to be
        ("", 0, None),
    ):
        span = locate(passage, SquadAnswer(answer, begin))
        assert found == (None if span is None else passage[slice(*span)]), answer


def test_whole_numbers_are_ids_and_offsets(tmp_path):
    first = {"id": 7, "question": "q", "answers": [{"text": "sol", "answer_start": 12.0}]}
    second = {"id": "x", "question": "q", "answers": [{"text": 5000, "answer_start": "25"}]}
    [passage] = read_squad(write(tmp_path / "a.json", first, second)).passages
    assert [one.id for one in passage.questions] == ["7", "x"]
    assert [one.answers for one in passage.questions] == [[("sol", 12)], [("5000", 25)]]


def test_answers_of_a_table_are_near_their_start_if_it_is_given(tmp_path):
    both = [("to", None), ("ka", None)]
    cases = [
        ({"answer": "ka", "answer_start": 6}, [("ka", 6)]),
        ({"answers": ["to", "ka"]}, both),
        ({"answers": {"text": ["to", "ka"]}}, both),
        ({"answers": [{"text": "to"}, {"text": "ka", "answer_start": 0}]}, [("to", None), ("ka", 0)]),
        ({"answer": None, "is_impossible": True}, []),
        ({"answer": "to", "is_impossible": False}, [("to", None)]),
    ]
    rows = [{"context": "ka to ka", "question": f"{n}?", **row} for n, (row, _) in enumerate(cases)]
    [passage] = read_squad(jsonl(tmp_path / "t.jsonl", rows)).passages
    assert [one.answers for one in passage.questions] == [expected for _, expected in cases]
    assert [one.impossible for one in passage.questions] == [False, False, False, False, True, False]


def test_files_that_are_not_squad(tmp_path):
    def paragraph(**fields):
        return json.dumps({"data": [{"paragraphs": [{"context": "a", "qas": [], **fields}]}]})

    for content, message in (
        ("{", "is not json"),
        ("[" * 100_000, "is not json"),
        ("[]", r"found \[\], expected an object with data, a list"),
        ('{"data": []}', "has no questions"),
        (paragraph(context=None), r"data\[0\].paragraphs\[0\]: context is None"),
        (paragraph(context="a\ud83d"), "context has '.ud83d', half"),
        (paragraph(qas=[{"id": 7.5}]), r"id is 7.5.*a str"),
        (paragraph().replace('"context"', '"context": "b", "context"'), '"context" is given twice: keep'),
    ):
        (tmp_path / "wrong.json").write_text(content)
        with pytest.raises(UserError, match=f"wrong.json.*{message}"):
            read_squad(tmp_path / "wrong.json")


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(squad_data, "_MAX_BYTES", 1000)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b" " * 10**6 + b"{}"))
    with pytest.raises(UserError, match="b.json.gz has more than 1,000 bytes of json: split it"):
        read_squad(tmp_path / "b.json.gz")


def test_wrong_answers_and_ids_are_named(tmp_path):
    bad = {"id": "q", "question": "q", "answers": [{"text": "sol"}]}
    for questions, message in (
        ([bad], r"qas\[0\].answers: answer_start is None, expected .* a int"),
        ([question("a"), question("a")], r"qas\[1\]: id 'a' is that of .*qas\[0\], too"),
    ):
        with pytest.raises(UserError, match=message):
            read_squad(write(tmp_path / "a.json", *questions))
    for damaged in (b"plain", gzip.compress(b'{"data": []}' * 99)[:-9]):
        (tmp_path / "c.json.gz").write_bytes(damaged)
        with pytest.raises(UserError, match="c.json.gz cannot be read to its end"):
            read_squad(tmp_path / "c.json.gz")
    with pytest.raises(FileNotFoundError):
        read_squad(tmp_path / "absent.json")
    with pytest.raises(UserError, match="is a folder without Parquet or Arrow files: give a file"):
        read_squad(tmp_path)


def test_rows_with_an_empty_id_are_named_by_their_line(tmp_path):
    row = {"id": None, "context": "sol du", "question": "?", "answers": {"text": [], "answer_start": []}}
    path = jsonl(tmp_path / "rows.jsonl", [{**row, "id": name} for name in (None, "x", "")])
    [passage] = read_squad(path).passages
    assert [question.id for question in passage.questions] == [f"{path}:1", "x", f"{path}:3"]

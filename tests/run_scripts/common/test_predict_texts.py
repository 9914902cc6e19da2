"""`run_scripts.predict` answers texts with a fine-tuned run, without a set of examples."""

import csv
import gzip
import json

import pytest

from run_scripts.common.answers import rows_of_file
from run_scripts.common.predicting import texts
from tests.helpers.commands import run_command
from tests.helpers.serving.toys import built
from xlnet_tf.errors import UserError
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.answers import text_answers

TEXTS = ["ba ne", "", "tor tor tor 1999, ba", "a film", "ne", "ren do su mi", "5, 12,"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["id", "review"], *([number, text] for number, text in enumerate(TEXTS))])
    return path


def predict(run, *flags):
    run_command("run_scripts.predict", f"--model_dir={run}", "--batch_size=2", *map(str, flags))


def answers(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


@pytest.mark.integration
def test_texts_of_flags_and_files_are_answered_alike(run, table, tmp_path, capsys):
    predict(run, f"--data={table}", "--column=text=review", f"--output_dir={tmp_path / 'out'}")
    assert "predictions.jsonl" in capsys.readouterr().out
    from_table = answers(tmp_path / "out")
    assert [(row["id"], row["review"]) for row in from_table] == [(str(n), t) for n, t in enumerate(TEXTS)]
    assert all(row["labels"] == ["bad", "good"] and row["label"] in row["labels"] for row in from_table)
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "predictions.jsonl"]

    lines = tmp_path / "reviews.jsonl.gz"
    lines.write_bytes(
        gzip.compress("".join(json.dumps({"n": n, "text": t}) + "\n" for n, t in enumerate(TEXTS)).encode())
    )
    predict(run, f"--data={lines}")
    from_lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["n"] for row in from_lines] == list(range(len(TEXTS)))
    for one, other in zip(from_table, from_lines, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)

    lines.with_name("test.csv").write_text("text,label\nba ne,good\ntor,bad\n")
    predict(run, f"--data={tmp_path}/test.csv")
    labelled = capsys.readouterr()
    assert [json.loads(line)["given_label"] for line in labelled.out.splitlines()] == ["good", "bad"]
    assert f"note: label of {tmp_path}/test.csv is given_label in the answers" in labelled.err
    predict(run, f"--input=text={TEXTS[2]}", f"--input=text={TEXTS[3]}")
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("label ")] == [
        row["label"] for row in from_table[2:4]
    ]


@pytest.mark.parametrize("name", ["a.csv", "A.CSV", "a.csv.gz", "A.CSV.GZ"])
def test_a_files_format_is_known_by_its_name_in_upper_case_too(tmp_path, name):
    compress = gzip.compress if name.lower().endswith(".gz") else bytes
    (tmp_path / name).write_bytes(compress(b"text,n\nba,1\n"))
    assert [*rows_of_file(str(tmp_path / name))] == [{"text": "ba", "n": "1"}]


def test_blank_lines_are_no_rows(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"text": "ba"}\n \t\r\n{"text": "ne"}\n\n')
    assert [*rows_of_file(str(tmp_path / "a.jsonl"))] == [{"text": "ba"}, {"text": "ne"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "ba"}\n\n{"text": \n', "a.jsonl, line 3: not json .*expected an object"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"a.jsonl, line 1: '\\ud800' is half a character"),
        ("a.jsonl", b"\n\n", "a.jsonl has no rows"),
        ("a.csv", b"text,label\n\xff,1\n", r"a.csv:2: byte 1 \(ff\) is not utf-8"),
        ("", None, "is a folder; with --server expected a file"),
    ],
)
def test_files_without_rows_are_named_with_the_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        [*rows_of_file(str(tmp_path / name))]


@pytest.mark.integration
def test_an_interrupted_prediction_resumes(run, table, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    flags = [f"--data={table}", "--column=text=review"]
    predict(run, *flags, f"--output_dir={whole}")
    monkeypatch.setattr(texts, "_LINES_KEPT", 3)
    answer_texts = text_answers.answer_texts
    answered = []

    def interrupted(module, rows, batch_size):
        for answer in answer_texts(module, rows, batch_size):
            if len(answered) == 5:
                raise KeyboardInterrupt
            answered.append(answer)
            yield answer

    monkeypatch.setattr(text_answers, "answer_texts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict(run, *flags, f"--output_dir={parts}")
    assert not (parts / "predictions.jsonl").exists()
    answered[:] = [None] * 10
    predict(run, *flags, f"--output_dir={parts}")
    assert len(answered) == 10 + len(TEXTS) - 3  # the first three were kept
    for one, other in zip(answers(parts), answers(whole), strict=True):
        assert one.pop("probabilities") == pytest.approx(other.pop("probabilities"), abs=1e-5)
        assert one.pop("score") == pytest.approx(other.pop("score"), abs=1e-5)
        assert one == other


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data={table}"], r"row 1: text missing; there is id, review\. .*=COLUMN"),
        (["--data={table}", "--column=body=review"], "--column=body=review: expected INPUT=COLUMN .* text"),
        (["--input=text=a", "--data={table}"], "--data is given, and so is --input, --text"),
        (["--input=text=a", "--output_dir=out"], "--output_dir is given, but answers to --input, --text and"),
        (["--input=review=a"], "the model has no input 'review': expected text, such as --input=text="),
        (["--data={lines}"], r"rows.jsonl, row 2: text is 5; expected a text"),
        (["--data={semicolons}"], "there is id;text. .*separated by ';': save the table with commas"),
        (["--data={twice}"], 'twice.jsonl, line 2: "text" is given twice: keep one of them'),
        (["--data={lines}", "--model_dir="], "^missing: --model_dir. .* or a server"),
    ],
)
def test_what_cannot_be_answered_is_named(run, table, tmp_path, flags, message, monkeypatch):
    if "{table}" in str(flags) or "review=a" in str(flags):  # no weights are read before
        monkeypatch.setattr("xlnet_tf.serving.tensorflow_sources.policy", None)
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"text": "a"}\n{"text": 5}\n')
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"text": "a"}\n{"text": "a", "text": "b"}\n')
    semicolons = tmp_path / "semicolons.tsv"
    semicolons.write_text("id;text\n1;a\n")
    paths = {"table": table, "lines": lines, "semicolons": semicolons, "twice": twice}
    with pytest.raises((UserError, FileNotFoundError), match=message):
        predict(run, *(flag.format(**paths) for flag in flags))


def test_a_question_without_options_is_an_error(run):
    with pytest.raises(UserError, match="the model refuses a row: .*options has none"):
        predict(run.parent / "choice", "--input=context=ba", "--input=question=ne", "--input=options=[]")


def test_answers_do_not_replace_the_file_that_they_answer(run, tmp_path):
    (tmp_path / "predictions.jsonl").write_text('{"text": "ba"}\n')
    with pytest.raises(UserError, match="would replace .*predictions.jsonl: choose another folder"):
        predict(run, f"--data={tmp_path}/predictions.jsonl", f"--output_dir={tmp_path}/")
    assert (tmp_path / "predictions.jsonl").read_text() == '{"text": "ba"}\n'


def test_models_that_answer_no_texts_are_named(tmp_path, small_tokenizer):
    model = built(XLNetPretrainer, small_tokenizer)
    model.save_pretrained(tmp_path / "pretrained", small_tokenizer)
    model.encoder.save_pretrained(tmp_path / "encoder", small_tokenizer)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "saved_model.pb").write_bytes(b"x")
    for what, message in (
        ("nothing", "there is no checkpoint at .*nothing"),
        ("pretrained", "is a pretrained language model: ask it with fill-mask, generate or score"),
        ("encoder", "does not say what it was trained for"),
        ("empty", "holds no checkpoint"),
        ("broken", "is not a model that export wrote for texts"),
    ):
        with pytest.raises((UserError, FileNotFoundError), match=message):
            predict(tmp_path / what, "--input=text=a")

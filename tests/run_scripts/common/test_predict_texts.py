"""`run_scripts.predict` answers texts with a fine-tuned run, without a set of examples."""

import csv
import gzip
import json
import tarfile

import pytest

from run_scripts.common import predict_texts
from tests.conftest import REPOSITORY
from tests.helpers.commands import run_command
from xlnet_tf.errors import UserError
from xlnet_tf.serving import text_answers

TEXTS = ["ba ne", "", "tor tor tor 1999, ba", "a film", "ne", "ren do su mi", "5, 12,"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A classifier of the labels bad and good."""
    folder = tmp_path_factory.mktemp("artefacts")
    with tarfile.open(REPOSITORY / "tests" / "contracts" / "artefacts.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "runs" / "classification"


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

    predict(run, f"--input=text={TEXTS[2]}", f"--input=text={TEXTS[3]}")
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("label ")] == [
        row["label"] for row in from_table[2:4]
    ]


@pytest.mark.integration
def test_an_interrupted_prediction_resumes(run, table, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    flags = [f"--data={table}", "--column=text=review"]
    predict(run, *flags, f"--output_dir={whole}")
    monkeypatch.setattr(predict_texts, "_LINES_KEPT", 3)
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
        (
            ["--data={table}"],
            r"reviews.csv, row 1: text missing; there is id, review\. .*--column=text=COLUMN",
        ),
        (["--data={table}", "--column=body=review"], "--column=body=review: expected INPUT=COLUMN .* text"),
        (["--input=text=a", "--data={table}"], "--input and --data are both given"),
        (["--input=review=a"], "--input=review=a: expected NAME=VALUE with the names text"),
        (["--data={table}", "--strategy=mirrored"], "--strategy: texts are answered on one CPU or GPU"),
        (["--data={lines}"], r"rows.jsonl, row 2: text is '5'; expected a text"),
        (["--data={lines}x"], "rows.jsonlx does not exist: check its name"),
        (["--data={lines}", "--model_dir="], "^--model_dir missing: .* or give --server"),
    ],
)
def test_what_cannot_be_answered_is_named(run, table, tmp_path, flags, message):
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"text": "a"}\n{"text": 5}\n')
    with pytest.raises((UserError, FileNotFoundError), match=message):
        predict(run, *(flag.format(table=table, lines=lines) for flag in flags))

"""predict, score and embed answer a corpus in shards: as single texts are answered, on every runner."""

import json

import numpy as np
import pytest

from tests.conftest import invent_texts
from tests.helpers.commands import run_command
from tests.helpers.serving.toys import built
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.export import export
from xlnet_tf.serving.sources import open_served

TEXTS = invent_texts(40, seed=5)
BEAM = "--beam_options=--runner=FnApiRunner --direct_num_workers=1 --direct_running_mode=in_memory"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("model")
    built(XLNetPretrainer, small_tokenizer).save_pretrained(folder, small_tokenizer)
    return folder


@pytest.fixture
def data(tmp_path):
    """A corpus of two formats, with a row that cannot be read."""
    rows = [{"id": number, "text": text, "label": "good"} for number, text in enumerate(TEXTS[:25])]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines[:9], "{", *lines[9:]]) + "\n")
    (tmp_path / "b.txt").write_text("\n".join(TEXTS[25:]) + "\n")
    return f"--data={tmp_path}/*.jsonl,{tmp_path}/b.txt"


def answer(command, model, data, folder, *flags):
    """Runs a command on the corpus in shards; returns the files that it wrote."""
    flags = ("--batch_size=4", "--shard_mb=0.001", "--num_workers=1", "--max_failed=1", *flags)
    run_command(f"run_scripts.{command}", f"--model_dir={model}", data, f"--output_dir={folder}", *flags)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows_of(found, name):
    shards = sorted(file for file in found if file.startswith(f"{name}-"))
    return [json.loads(line) for file in shards for line in found[file].splitlines()]


def assert_beam_writes_the_same(found, command, model, data, folder, *flags):
    pytest.importorskip("apache_beam", reason="requirements-beam.txt")
    assert answer(command, model, data, folder, "--runner=beam", BEAM, *flags) == found


@pytest.mark.integration
def test_predict(run, data, tmp_path, capsys):
    found = answer("predict", run, data, tmp_path / "out")
    assert "40 rows" not in capsys.readouterr().out  # but 41, one of which failed
    rows = rows_of(found, "predictions")
    assert [row["text"] for row in rows] == TEXTS
    assert [row["id"] for row in rows[:25]] == [*range(25)] and rows[0]["given_label"] == "good"
    table = tmp_path / "all.csv"
    table.write_text("text\n" + "".join(f'"{text}"\n' for text in TEXTS))
    run_command("run_scripts.predict", f"--model_dir={run}", f"--data={table}")
    for row, line in zip(rows, capsys.readouterr().out.splitlines(), strict=True):
        expected = json.loads(line)
        assert row["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
        assert row["label"] == expected["label"]
    [failed] = rows_of(found, "failed-predictions")
    assert failed["source"].endswith("a.jsonl") and failed["line"] == 10
    assert_beam_writes_the_same(found, "predict", run, data, tmp_path / "beam")


@pytest.mark.integration
def test_score(pretrained, data, tmp_path):
    found = answer("score", pretrained, data, tmp_path / "out", "--order=random", "--seed=3", "--pieces")
    rows = rows_of(found, "scores")
    expected = XLNetLanguageModel.from_pretrained(pretrained).score(TEXTS, order="random", seed=3)
    for row, score, text in zip(rows, expected, TEXTS, strict=True):
        assert row["text"] == text and row["pieces"] == score.pieces
        assert row["log_probability"] == pytest.approx(score.total, rel=1e-4)
        np.testing.assert_allclose(row["log_probabilities"], score.log_probabilities, rtol=1e-3, atol=1e-5)
    flags = ("--order=random", "--seed=3", "--pieces")
    assert_beam_writes_the_same(found, "score", pretrained, data, tmp_path / "beam", *flags)
    note = json.loads(found["scores.json"])
    assert note["settings"].pop("dtype") == "float32"  # earlier versions did not note it: their jobs resume
    (tmp_path / "out/scores.json").write_text(json.dumps(note))
    assert rows_of(answer("score", pretrained, data, tmp_path / "out", *flags), "scores") == rows
    with pytest.raises(UserError, match="another job.*\n  seed: 3 there, 4 now"):
        answer("score", pretrained, data, tmp_path / "out", "--order=random", "--seed=4", "--pieces")


@pytest.mark.integration
def test_embed(pretrained, run, data, tmp_path, capsys):
    found = answer("embed", pretrained, data, tmp_path / "out", "--tokens")
    rows = rows_of(found, "embeddings")
    expected = XLNetLanguageModel.from_pretrained(pretrained).embed(TEXTS, tokens=True)
    for row, mean, tokens, pieces in zip(rows, expected.mean, expected.tokens, expected.pieces, strict=True):
        np.testing.assert_allclose(row["embedding"], mean, atol=1e-5)
        np.testing.assert_allclose(row["token_embeddings"], tokens, atol=1e-5)
        assert row["pieces"] == pieces
    assert_beam_writes_the_same(found, "embed", pretrained, data, tmp_path / "beam", "--tokens")

    export(open_served(str(pretrained), seq_len=512).load(), str(tmp_path / "served"))
    served = answer("embed", tmp_path / "served", data, tmp_path / "of_served", "--tokens")
    for row, one in zip(rows_of(served, "embeddings"), rows, strict=True):
        np.testing.assert_allclose(row["token_embeddings"], one["token_embeddings"], atol=1e-5)
        assert row["pieces"] == one["pieces"] and row["embedding"] == pytest.approx(
            one["embedding"], abs=1e-5
        )

    with pytest.raises(UserError, match="is exported and keeps the type .*: leave out --dtype=bfloat16"):
        answer("embed", tmp_path / "served", data, tmp_path / "no", "--dtype=bfloat16")

    (tmp_path / "a.txt").write_text("\n".join([*TEXTS[:3], "ba " * 40_000, *TEXTS[3:6]]))
    found = answer("embed", pretrained, f"--data={tmp_path}/a.txt", tmp_path / "long")
    assert [row["text"] for row in rows_of(found, "embeddings")] == TEXTS[:6]
    [failed] = rows_of(found, "failed-embeddings")  # a text that is too long fails alone
    assert (
        failed["line"] == 4 and "expected at most 32,768" in failed["reason"] and len(failed["found"]) < 300
    )
    capsys.readouterr()
    run_command("run_scripts.embed", f"--model_dir={run}", "--text=ba ne", "--text=tor", "--pooling=cls")
    one, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert one["text"] == "ba ne" and len(one["embedding"]) == len(other["embedding"]) > 1
    assert one["embedding"] != other["embedding"]


@pytest.mark.integration
def test_bfloat16_is_float32_but_for_rounding(pretrained, data, tmp_path):
    model = XLNetLanguageModel.from_pretrained(pretrained)
    scores = [score.total for score in model.score(TEXTS)]
    for command, name, field, expected, tolerance in (
        ("score", "scores", "log_probability", scores, {"rtol": 0.02}),
        ("embed", "embeddings", "embedding", model.embed(TEXTS).mean, {"atol": 0.1}),
    ):
        answers = answer(command, pretrained, data, tmp_path / name, "--dtype=bfloat16")
        found = np.array([row[field] for row in rows_of(answers, name)])
        np.testing.assert_allclose(found, expected, **tolerance)
        assert np.abs(found - expected).max() > 1e-4
    with pytest.raises(UserError, match="another job.*\n  dtype: bfloat16 there, float32 now"):
        answer("embed", pretrained, data, tmp_path / "embeddings")


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("predict", ["--column=text=body"], "body missing; there is id, text, label"),
        ("predict", ["--data={data}/none*"], "no corpus file matches"),
        ("score", ["--output_dir="], "--output_dir is missing: the folder for the answers"),
        ("score", ["--text=a"], "--text and --data are both given: expected one"),
        ("embed", ["--data=", "--tfds_name=x", "--text=a"], "--text and --tfds_name are both given"),
    ],
)
def test_what_cannot_be_answered_is_named(run, pretrained, data, tmp_path, command, flags, message):
    flags = [f"--data={tmp_path}/a.jsonl", f"--output_dir={tmp_path}/out", "--shard_mb=1", *flags]
    model = run if command == "predict" else pretrained
    with pytest.raises((UserError, FileNotFoundError), match=message):
        run_command(
            f"run_scripts.{command}", f"--model_dir={model}", *(f.format(data=tmp_path) for f in flags)
        )
    assert not (tmp_path / "out").exists()

"""`finetune --train`: from a table to an answer, and what people write wrongly is one line."""

import random
import re

import pytest

from run_scripts.common import own_tables
from run_scripts.common.predicting.options import PredictOptions
from tests.helpers.commands import run_command, run_in_fork
from tfrecord_builders.common.tables import default_model_dir
from xlnet_tf.errors import UserError
from xlnet_tf.pages.next_steps import after_finetuning

TRAINING = ("--preset=micro", "--dtype=float32", "--epochs=6", "--learning_rate=1e-2")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("own")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    rng, words = random.Random(0), ("ba", "ne", "mi", "kal", "su")
    rows = [
        (f"{' '.join(rng.choices(words, k=4))} {'tor' if n % 2 else 'do'}", "ba" if n % 2 else "ne")
        for n in range(160)
    ]
    (folder / "reviews.csv").write_text("review,stars\n" + "".join(f"{a},{b}\n" for a, b in rows))
    return folder


@pytest.mark.integration
def test_all_settings_are_shown_with_their_origin(reviews):
    train, tokenizer = f"--train={reviews}/reviews.csv", f"--tokenizer={reviews}/spiece.model"
    done = run_in_fork(
        "run_scripts.finetune",
        *(train, tokenizer, f"--model_dir={reviews}/shown", "--show_config", "--epochs=6", "--preset=micro"),
        *("--config_file=glue/rte", "--params_override=task.seed=5", "--train_steps=0"),
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("task.", "trainer."))]
    found = {path: rest for path, *rest in (re.split("  +", line) for line in lines)}
    assert found["task.epochs"] == ["6.0", "--epochs"] and found["task.seed"] == ["5", "--params_override"]
    assert found["trainer.optimizer_config.learning_rate"] == ["3e-05", "--config_file=glue/rte"]
    assert found["trainer.train_steps"][1].startswith("follows") and found["trainer.patience"][1] == "default"
    assert not (reviews / "shown/checkpoint").exists()


def test_texts_that_the_tokenizer_cannot_write_are_warned_of(reviews, tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"日本語 {n},{'ab'[n % 2]}\n" for n in range(60)))
    options = own_tables.TableOptions(train=str(table), tokenizer=f"{reviews}/spiece.model")
    for warn in (True, False):
        own_tables.build(options, str(tmp_path / "run"), None, warn=warn)
        assert ("% of the pieces of train are <unk>" in capsys.readouterr().out) == warn


@pytest.mark.long
def test_from_a_table_to_an_answer(reviews):
    train, tokenizer = f"--train={reviews}/reviews.csv", f"--tokenizer={reviews}/spiece.model"
    model_dir = f"--model_dir={reviews}/run"
    first = run_in_fork("run_scripts.finetune", train, tokenizer, model_dir, *TRAINING)
    assert first.returncode == 0, first.stderr
    assert "classification, text in 'review', label in 'stars' (ba, ne)" in first.stdout
    assert "next:\n  xlnet-tf predict --model_dir=" in first.stdout
    again = run_in_fork("run_scripts.finetune", train, tokenizer, model_dir, *TRAINING)
    assert "; examples as before" in again.stdout
    answer = run_in_fork("run_scripts.predict", model_dir, "--text=mi kal tor")
    assert answer.stdout.startswith("label          ba")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing: either --data or --train, and either --model_dir or --train"),
        (("--train=a.csv",), "--train needs --init_checkpoint, the model to begin with: a folder"),
        (("--data=a", "--model_dir=b", "--text_column=c"), "--text_column: for --train; the"),
        (("--train=a.csv", "--test=b.csv", "--tokenizer=c", "--num_seeds=3"), "--test is evaluated"),
    ],
)
def test_wrong_ways_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_in_fork("run_scripts.finetune", *arguments)
    assert done.returncode == 1 and done.stderr.startswith(f"ERROR: {message}")
    assert done.stderr.count("\n") == 1


REVIEWS = "review,stars\n" + "".join(f"ka {n},{'ab'[n % 2]}\n" for n in range(40))
TEXTS_AS_LABELS = "review,stars\n" + "".join(f"ka {n},x{n}\n" for n in range(40))


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("body_1,verdict\nka,a\n", "", "CSV has the columns body_1, verdict: which has the text and which the"
         " label? Say so with --text_column and --label_column, or another task with --task (classifica"),
        (REVIEWS, "--text_column=reviews",
         "CSV has no column 'reviews', only review, stars: name the right one with --text_column"),
        (REVIEWS, "--task=tagging", "CSV has the columns review, stars: which has the tokens and which the "
         "tags? Say so with --tokens_column and --tags_column"),
        ("text,label,query,passage\nka,a,to,b\n", "", "CSV may be for classification (text, label) or ranking"
         " (query, passage, label): give --task=classification or --task=ranking"),
        ("review,stars\nka,\nto,\n", "",
         "CSV has no label in column 'stars': label some rows, or name another with --label"),
        (TEXTS_AS_LABELS, "",
         "CSV: 'stars' has 40 values in 40 rows, hardly classes: name another with --label_column"),
        ("", "--train=FOLDER/empty", "FOLDER/empty has no Parquet or Arrow files and no folders: give"),
        ("", "--train=stanfordnlp/imdb", "stanfordnlp/imdb does not exist; a data set of the Hugging Face hub"
         " is hf://datasets/stanfordnlp/imdb/train"),
    ],
)  # fmt: skip
def test_what_people_guess_is_answered_in_one_line(content, arguments, message, reviews, tmp_path):
    (tmp_path / "reviews.csv").write_text(content)
    (tmp_path / "empty").mkdir()

    def named(text):
        return text.replace("CSV", f"{tmp_path}/reviews.csv").replace("FOLDER", str(tmp_path))

    flags = ["--train=CSV", f"--tokenizer={reviews}/spiece.model", *arguments.split()]
    with pytest.raises((UserError, FileNotFoundError), match=f"^{re.escape(named(message))}") as error:
        run_command("run_scripts.finetune", *map(named, flags), f"--model_dir={tmp_path}/run")
    assert "\n" not in str(error.value)


def test_a_run_has_the_name_of_its_table_and_its_next_command_a_text():
    tables = ["data/reviews.csv", "reviews.jsonl.gz", "films/"]
    tables.append("hf://datasets/stanfordnlp/imdb:plain@main/train[:10%]")
    expected = ["runs/reviews", "runs/reviews", "runs/films", "runs/imdb"]
    assert [*map(default_model_dir, tables)] == expected
    predict = after_finetuning("run", "classification", {"text": "It's good"}, "")[0]
    assert predict == 'xlnet-tf predict --model_dir=run --text="It\'s good"'


def test_flags_for_texts_are_inputs_of_the_model():
    for flags, inputs in (
        ({"text": ["a", "b"]}, ["text=a", "text=b"]),
        ({"text": ["a"], "text_pair": ["b"]}, ["text_a=a", "text_b=b"]),
        ({"question": ["q"], "context": ["c"]}, ["question=q", "context=c"]),
        ({"question": ["q"], "option": ["x", "y, z"]}, ["question=q", 'options=["x", "y, z"]', "context="]),
        ({"query": ["q"], "candidate": ["x"]}, ["query=q", 'candidates=["x"]']),
        ({"text": ["a"], "input": ["text=b"]}, ["text=b", "text=a"]),
    ):
        assert list(PredictOptions(**flags).with_inputs().input) == inputs
    with pytest.raises(UserError, match="--option is for one row: give more with --input=options="):
        PredictOptions(question=["q", "r"], option=["x"]).with_inputs()

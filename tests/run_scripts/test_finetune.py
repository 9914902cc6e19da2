"""The commands of the README, one after the other: build, fine-tune, evaluate, predict."""

import csv
import json
import random
import re

import pytest

from run_scripts import evaluate, finetune
from run_scripts.common import experiment, sweeps
from tests.conftest import invent_texts
from tests.helpers.command_flags import parsed
from tests.helpers.commands import run_command, run_in_fork
from xlnet_tf import task_registry
from xlnet_tf.errors import UserError

RECIPE = """
task:
  model: {n_layer: 1, d_model: 16, n_head: 2, d_head: 8, d_inner: 16, summary: mean}
  train_data: {global_batch_size: 8}
  epochs: 6.0
trainer: {optimizer_config: {learning_rate: 0.02}}
"""


def run(module, *arguments):
    """Runs a command in a process of its own; returns what it prints."""
    ended = run_in_fork(module, *map(str, arguments))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_tokenizer):
    """A folder with tables of texts, labelled by a word that they hold."""
    folder = tmp_path_factory.mktemp("finetune")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    (folder / "recipe.yaml").write_text(RECIPE)
    rng = random.Random(0)
    for split, count in (("train", 64), ("dev", 20)):
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["words", "class"])
            for number, text in enumerate(invent_texts(count, seed=count)):
                words = text.split()[:5]
                words.insert(rng.randrange(5), "1999," if number % 2 else "2008,")
                writer.writerow([" ".join(words), "old" if number % 2 else "new"])
    return folder


ENTRY = task_registry.find("classification")
SETTINGS = (*finetune.SETTINGS, *ENTRY.settings)


def load(*arguments):
    values = parsed(lambda: experiment.define_flags(SETTINGS), "--model_dir=unused", *arguments)
    options = experiment.run_options(SETTINGS, values)
    return experiment.load(ENTRY.experiment, SETTINGS, options), options.given


def test_a_sweep_has_one_kind_of_devices_and_names_a_setting_once():
    """Its process sets the devices up once, before the first run: all would be trained alike."""
    params, _ = load()
    for axis in ("dtype", "strategy", "runtime.mixed_precision_dtype", "runtime.num_gpus"):
        with pytest.raises(UserError, match=f"--sweep={axis}: all runs of a sweep share the devices"):
            sweeps.variant(params, "xlnet/classification", SETTINGS, {axis: "bfloat16"})
    assert sweeps.variant(params, "xlnet/classification", SETTINGS, {"jit_compile": True})
    with pytest.raises(UserError, match="names a setting twice, by its flag and its path: seed, task.seed"):
        sweeps.variant(params, "xlnet/classification", SETTINGS, {"seed": 1, "task.seed": 2})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config_file=glue/sst-2", "--epochs=1"], "--epochs has no effect, as train_steps is 10000: give"),
        (["--config_file=glue/sst-2", "--epochs=1", "--train_steps=0"], ""),
        (["--warmup_fraction=0.2", "--warmup_steps=5"], "--warmup_fraction has no effect, as warmup_steps"),
    ],
)
def test_flags_without_effect_are_said(arguments, said, caplog):
    params, given = load(*arguments)
    caplog.clear()
    sweeps.check_effect(params, given)
    assert said in caplog.text and bool(said) == bool(caplog.text)
    if said:
        flag = said[2:].partition(" ")[0]
        with pytest.raises(UserError, match=f"--sweep={flag} has no effect"):
            sweeps.check_effect(params, given, [flag])


@pytest.mark.integration
def test_from_tables_to_predictions(folder):
    records, model_dir = folder / "records", folder / "run"
    built = run("tfrecord_builders.classification", f"--train={folder}/train.csv", f"--dev={folder}/dev.csv",
                "--text_column=words", "--label_column=class", "--seq_len=32",
                f"--tokenizer={folder}/spiece.model", f"--output_dir={records}")  # fmt: skip
    assert "label new" in built
    options = (f"--config_file={folder}/recipe.yaml", f"--data={records}", f"--model_dir={model_dir}")
    refused = run_in_fork("run_scripts.finetune", *options, "--dev_split=nothing")
    assert "has dev, train, and no nothing to evaluate on: build it" in refused.stderr
    trained = run("run_scripts.finetune", *options, "--num_seeds=2")
    assert trained.splitlines()[-1].split()[0] == "median"
    seeds = json.loads((model_dir / "seeds.json").read_text())
    assert [seed["problem"] for seed in seeds] == ["", ""]
    evaluated = run("run_scripts.evaluate", f"--model_dir={model_dir}/seed-0", f"--data={records}/dev")
    scores = json.loads((model_dir / "seed-0" / "evaluations.json").read_text())
    metric = seeds[0]["metric"]
    assert scores["best"][metric] == max(score[metric] for score in scores.values())
    assert scores["best"][metric] == pytest.approx(seeds[0]["best"][metric])
    assert "<- best" in evaluated
    predicted = run("run_scripts.predict", f"--model_dir={model_dir}/seed-0", f"--data={records}/dev",
                    f"--output_dir={folder}/out", "--strategy=mirrored", "--virtual_devices=2")  # fmt: skip
    assert not (folder / "out" / "unfinished_predictions").exists()
    assert len(list((folder / "out").iterdir())) >= 2
    assert f"{scores['best'][metric]:.4f}" in predicted


def test_evaluate_marks_one_checkpoint():
    tied = {"ckpt-2": {"f1": 0.5}, "ckpt-4": {"f1": 0.7}, "ckpt-6": {"f1": 0.7}, "best": {"f1": 0.7}}
    assert evaluate.best(tied, "f1") == "best"
    assert [line.split()[0] for line in evaluate.table(tied, "f1").splitlines() if "<-" in line] == ["best"]
    del tied["best"]
    assert evaluate.best(tied, "f1") == "ckpt-4"
    assert evaluate.best({**tied, "ckpt-2": {"f1": float("nan")}, "best": {"f1": 0.6}}, "f1") == "ckpt-4"


def test_a_sweep_over_what_does_not_exist_is_one_error_before_anything_is_written(tmp_path, small_tokenizer):
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    rows = [f"{text},{number % 2}" for number, text in enumerate(["A fine film", "A dull film"] * 8)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    run_command("tfrecord_builders.classification", f"--train={tmp_path}/train.csv", "--dev_fraction=0.5",
                "--seq_len=32", f"--tokenizer={tmp_path}/spiece.model",
                f"--output_dir={tmp_path}/records")  # fmt: skip
    for axis, message in (
        ("lerning_rate:1,2", "--sweep=lerning_rate: there is no such setting: did you mean learning_rate?"),
        ("task.model.droput:0.1", "there is no setting task.model.droput: did you mean task.model.dropout"),
        ("reinit_layers:0,1", "reinit_layers=1: task.reinit_layers (--reinit_layers) is 1, and without"),
        ("warmup_steps:0,1000", "warmup_steps=1000: warmup_steps is 1000 and train_steps is"),
    ):
        for options in ([], ["--dry_run"]):
            with pytest.raises(UserError, match=re.escape(message)):
                run_command("run_scripts.finetune", f"--config_file={tmp_path}/recipe.yaml",
                            f"--data={tmp_path}/records", f"--model_dir={tmp_path}/sweep",
                            f"--sweep={axis}", *options)  # fmt: skip
            assert not (tmp_path / "sweep").exists()
    with pytest.raises(UserError, match="--sweep compares runs on dev examples: leave out --dev_split="):
        run_command("run_scripts.finetune", f"--data={tmp_path}/records", f"--model_dir={tmp_path}/sweep",
                    "--sweep=dropout:0,0.1", "--dev_split=")  # fmt: skip

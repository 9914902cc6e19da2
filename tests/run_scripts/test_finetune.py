"""What finetune and evaluate refuse, say and choose, without training."""

import re

import pytest

from run_scripts import evaluate, finetune
from run_scripts.common import experiment, sweeps
from tests.helpers.command_flags import parsed
from tests.helpers.commands import run_command
from tests.run_scripts.test_evaluate import RECIPE
from xlnet_tf import task_registry
from xlnet_tf.errors import UserError

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

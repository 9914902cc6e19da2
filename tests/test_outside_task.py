"""A task that an installed package adds works in every command, with no file of the project touched."""

import json

import numpy as np
import pytest
import tensorflow as tf

from run_scripts import convert_checkpoint, evaluate, export, finetune, predict
from run_scripts.tpu_compile import plan
from tests.helpers import tasks
from tests.helpers.command_flags import fresh_flags, parsed
from tests.helpers.models import heads
from tests.helpers.preference import builder
from tests.helpers.preference.entry import TASK
from tests.helpers.serving import exports
from tests.helpers.training import programs, toy_finetuning
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint
from xlnet_tf.errors import UserError

RECIPE = """
task:
  model: {n_layer: 1, d_model: 16, n_head: 2, d_head: 8, d_inner: 16}
  train_data: {global_batch_size: 8}
  epochs: 6.0
trainer: {steps_per_loop: 4, optimizer_config: {learning_rate: 0.02}}
"""


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The package's metadata, where Python looks for installed packages."""
    site = tmp_path_factory.mktemp("site")
    info = site / "preference-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: preference\nVersion: 1.0\n")
    point = "preference = tests.helpers.preference.entry:TASK"
    (info / "entry_points.txt").write_text(f"[{task_registry.ENTRY_POINTS}]\n{point}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        with tasks.registered():
            yield


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("preference")
    (folder / "recipe.yaml").write_text(RECIPE)
    builder.build(folder / "train", small_tokenizer, 48)
    builder.build(folder / "dev", small_tokenizer, 20, seed=1)
    return folder


def command(module, *arguments):
    with fresh_flags() as values:
        module.define_flags()
        values(["command", *map(str, arguments)])
        module.main(["command"])


@pytest.fixture(scope="module")
def run(data):
    folder = data / "run"
    command(finetune, f"--data={data}", f"--config_file={data}/recipe.yaml", f"--model_dir={folder}",
            "--margin=0.1")  # fmt: skip
    return folder


def test_it_is_found_under_all_its_names():
    assert task_registry.find("comparison") is task_registry.find("preference") is TASK


@pytest.mark.integration
def test_it_is_trained_and_evaluated(data, run, capsys):
    assert "margin: 0.1" in (run / "params.yaml").read_text()
    best = json.loads((run / "best" / "metrics.json").read_text())
    assert best["accuracy"] > 0.8 and best["hits"] == pytest.approx(best["accuracy"])
    assert "loss" not in best
    command(evaluate, f"--model_dir={run}", f"--data={data}/dev")
    assert "<- best" in capsys.readouterr().out
    assert json.loads((run / "evaluations.json").read_text())["best"]["accuracy"] == best["accuracy"]


@pytest.mark.integration
def test_its_predictions_are_written_and_served(data, run, small_tokenizer, capsys):
    rows = builder.build(data / "test", small_tokenizer, 8, seed=2)
    command(predict, f"--model_dir={run}", f"--data={data}/test", f"--output_dir={data}/predicted")
    lines = [json.loads(line) for line in (data / "predicted" / "preferences.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [row["id"] for row in rows]

    command(export, f"--model_dir={run}", f"--output_dir={data}/served", "--warmup_batches=1,2")
    assert "serving_default  text_a, text_b -> preferred, scores" in capsys.readouterr().out
    serve = tf.saved_model.load(str(data / "served" / "1")).signatures["serving_default"]
    answers = serve(text_a=tf.constant([r["a"] for r in rows]), text_b=tf.constant([r["b"] for r in rows]))
    np.testing.assert_allclose(answers["scores"], [line["scores"] for line in lines], atol=1e-4)
    preferred = [answer.decode() for answer in answers["preferred"].numpy()]
    assert preferred == [line["preferred"] for line in lines]


@pytest.mark.integration
def test_its_weights_are_converted_and_served_without_the_run(data, run, capsys, small_tokenizer):
    text = convert_checkpoint.convert(str(run / "best"), str(data / "hf"), "hugging_face", None, strict=True)
    assert "note: its models have no preference" in text
    source, there = (open_checkpoint(str(folder)) for folder in (run / "best", data / "hf"))
    assert there.arrays.shapes == source.arrays.shapes
    save_checkpoint(source, str(data / "ours"), "ours")
    (data / "ours" / "manifest.json").unlink()  # which makes it a run
    command(export, f"--model_dir={data}/ours", f"--output_dir={data}/converted", "--head=comparison",
            "--seq_len=12", "--warmup_batches=1")  # fmt: skip
    versions = [tf.saved_model.load(str(data / name / "1")) for name in ("converted", "served")]
    texts = {"text_a": tf.constant(["1999, ba", "ne"]), "text_b": tf.constant(["tor", "1999,"])}
    found, expected = (version.signatures["serving_default"](**texts) for version in versions)
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-4)


def test_suites_over_the_tasks_find_it_in_the_registry(small_tokenizer):
    kind = exports.of_registry("preference")
    module = kind.module(kind.model(small_tokenizer), small_tokenizer)
    answers = module.answer(**{name: tf.constant(values) for name, values in kind.rows(module).items()})
    assert answers["scores"].shape == (3, 2)
    model = programs.model_of("preference", heads.CONFIG)
    assert type(model) is TASK.load("model")
    assert model(heads.random_features("preference", np.random.default_rng(0))).shape == (heads.B, 2)


def test_a_dry_run_describes_it_and_its_flag_is_an_error_for_other_tasks(
    data, tmp_path, capsys, small_tokenizer
):
    command(finetune, f"--data={data}", f"--config_file={data}/recipe.yaml", f"--model_dir={tmp_path}/run",
            "--dry_run")  # fmt: skip
    assert "48 records of 24 tokens" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    toy_finetuning.make_examples(tmp_path / "train", small_tokenizer, 4, task="tagging")
    with pytest.raises(UserError, match="--margin is for preference, not for tagging: leave it out"):
        command(finetune, f"--data={tmp_path}", f"--model_dir={tmp_path}/run", "--margin=1")


@pytest.mark.parametrize("name", ["preference", pytest.param("comparison", marks=pytest.mark.integration)])
def test_its_step_is_lowered_on_synthetic_data(name):
    arguments = [f"--task={name}", "--preset=micro", "--seq_len=24", "--vocab_size=60", "--batch_per_core=2"]
    plan.check_flags(plan.from_flags(parsed(plan.define_flags, *arguments)))
    with fresh_flags():
        lowered = plan.lower(arguments, 2)
    assert lowered.lengths == {"seq_len": 24, "sequences": 2} and len(lowered.hlo) > 1000
    with pytest.raises(UserError, match="these flags have no effect: --num_labels, --sequences. Leave"):
        more = parsed(plan.define_flags, *arguments, "--num_labels=3", "--sequences=3")
        plan.check_flags(plan.from_flags(more))

"""A pretraining run from its settings: what it leaves, how it resumes, what it refuses."""

import dataclasses
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from official.modeling.hyperparams import params_dict

from tests.helpers.records.synthetic import make_text_set
from tests.helpers.training import toy
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.records.reader import pretraining_dataset
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.checks import check_resumable
from xlnet_tf.training.progress import read_history


def test_a_run_reports_its_losses_and_its_folder_is_enough_for_later_tools(run, folder):
    model_dir, params, metrics = run
    history = read_history(str(model_dir / "history.jsonl"))
    steps = " ".join(f"{line['kind']}-{line['step']}" for line in history)
    assert steps == "dev-0 train-2 dev-2 train-4 dev-4 train-6 train-7 dev-7"
    assert history[-1]["loss"] == pytest.approx(metrics["loss"])
    assert {"loss", "perplexity", "accuracy", "loss_forward", "loss_backward"} == set(metrics)
    assert history[0]["loss"] == pytest.approx(np.log(60), abs=0.2)
    assert all(line["tokens_per_second"] > 0 for line in history if line["kind"] == "train")
    text = (model_dir / "report.html").read_text()
    assert "Step 7 of 7" in text and "loss" in text and "tokens in" in text
    assert f"xlnet-tf generate --model_dir={model_dir}" in text

    config = XLNetConfig.from_json_file(str(model_dir / "xlnet_config.json"))
    assert (config.n_token, config.n_layer, config.d_model) == (60, 1, 16)
    assert (model_dir / "spiece.model").read_bytes() == (folder / "records" / "spiece.model").read_bytes()
    assert toy.Manifest.load(model_dir).records == 61
    again = pretraining.pretraining_experiment()
    again.override(params_dict.read_yaml_to_params_dict(str(model_dir / "params.yaml")).as_dict())
    assert again.as_dict() == params.as_dict()


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_a_model_is_loaded_as_it_was_trained(folder):
    options = {"attention_type": "uni", "same_length": True, "clamp_len": 3, "uniform_when_blind": True}
    model_dir = folder / "uni"
    params = toy.short_run(folder, task={"model": options}, trainer={"train_steps": 1})
    pretraining.pretrain(params, str(model_dir))
    (model_dir / "spiece.model").unlink()  # the toy records' is a stand-in that no tokenizer can read
    encoder = XLNetPretrainer.from_pretrained(model_dir).encoder
    assert {name: getattr(encoder, name) for name in options} == options


def test_endless_memory_is_never_hidden(folder):
    task = pretraining.PretrainingTask(toy.short_run(folder, task={"model": {"endless_memory": True}}).task)
    memory = task.build_memory(2)
    features = {"stream_start": tf.constant([True, False])}
    empty = task.read_memory(memory, features)
    assert empty["memory_mask"].numpy().all() and not empty["memory"].numpy().any()
    memory.write(tf.ones_like(empty["memory"]), tf.ones_like(empty["memory_mask"]))
    full = task.read_memory(memory, features)
    assert full["memory_mask"].numpy().all() and full["memory"].numpy().all()


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_online_permutation_is_for_training_only(tmp_path, small_tokenizer):
    records = make_text_set(tmp_path / "records", small_tokenizer, [[(20, 18), (9, 14)]], stream_segments=3)
    dev = {"input_path": str(records.folder), "global_batch_size": 8}
    settings = {"permutation": "online", "validation_data": dev}
    params = toy.short_run(tmp_path, task=settings, trainer={"train_steps": 1})
    pretraining.pretrain(params, str(tmp_path / "model"))
    history = read_history(str(tmp_path / "model/history.jsonl"))
    assert [line["kind"] for line in history] == ["dev", "train", "dev"]
    task = pretraining.PretrainingTask(params.task)
    for data, drawn in ((params.task.train_data, True), (params.task.validation_data, False)):
        found = next(iter(task.build_inputs(data)))
        expected = next(iter(pretraining_dataset(records, 8, repeat=drawn)))
        np.testing.assert_array_equal(found["input_word_ids"], expected["input_word_ids"])
        assert (found["permutation_rank"].numpy() != expected["permutation_rank"].numpy()).any() == drawn
    with pytest.raises(UserError, match="permutation is 'none', expected one of precomputed, online"):
        params.task.permutation = "none"
        pretraining.build_task(params)


@pytest.mark.integration
def test_a_killed_run_resumes_bit_for_bit(run, folder):
    model_dir, _, metrics = run
    killed = folder / "killed"
    shutil.copytree(model_dir, killed)
    for file in (file for step in (6, 7) for file in killed.glob(f"ckpt-{step}.*")):
        file.unlink()
    note = 'model_checkpoint_path: "ckpt-4"\nall_model_checkpoint_paths: "ckpt-2"\n'
    (killed / "checkpoint").write_text(note + 'all_model_checkpoint_paths: "ckpt-4"\n')

    assert pretraining.pretrain(toy.short_run(folder), str(killed)) == metrics
    before, after = toy.tensors(model_dir / "ckpt-7"), toy.tensors(killed / "ckpt-7")
    assert before.keys() == after.keys() and len(before) > 50
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    history = [read_history(str(path / "history.jsonl")) for path in (model_dir, killed)]
    steps = [[(line["step"], line["kind"], line["loss"]) for line in lines] for lines in history]
    assert steps[0] == steps[1]


def resume(params, model_dir):
    check_resumable(params, pretraining.PretrainingTask(params.task), str(model_dir))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"trainer": {"optimizer_config": {"learning_rate": 0.5}}}, "learning_rate: 0.01 there, 0.5 now"),
        ({"trainer": {"train_steps": 9}}, "train_steps: 7 there, 9 now"),
        ({"task": {"train_data": {"global_batch_size": 4}}}, "global_batch_size: 8 there, 4 now"),
        ({"task": {"model": {"d_model": 32}}}, "d_model: 16 there, 32 now"),
        ({"task": {"seed": 3}}, "seed: 0 there, 3 now"),
        ("other records", "records' shards"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(run, folder, overrides, message):
    if overrides == "other records":
        toy.make_records(folder / "others", seed=5)
        overrides = {"task": {"train_data": {"input_path": str(folder / "others")}}}
    with pytest.raises(UserError, match=message) as error:
        resume(toy.short_run(folder, **overrides), run[0])
    assert str(run[0]) in str(error.value) and "--model_dir" in str(error.value)


def test_another_machine_may_resume_a_run(run, folder):
    shutil.copytree(folder / "records", folder / "moved")
    task = {"train_data": {"input_path": str(folder / "moved")}}
    task["general_data"] = {"input_path": str(folder / "dev")}
    trainer = {"accumulation_steps": 2, "steps_per_loop": 7, "checkpoint_interval": 3}
    params = toy.short_run(folder, task=task, trainer=trainer)
    params.override({"runtime": {"distribution_strategy": "mirrored"}})
    params.task.validation_data.global_batch_size = 4
    resume(params, run[0])


def test_checkpoints_without_settings_are_not_resumed(run, folder, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    (tmp_path / "run" / "params.yaml").unlink()
    with pytest.raises(UserError, match="holds checkpoints but no params.yaml.*put it back"):
        resume(toy.short_run(folder), tmp_path / "run")


def test_a_new_run_begins_with_the_weights_of_another(run, folder):
    params = toy.short_run(folder, task={"init_checkpoint": str(run[0])})
    task = pretraining.PretrainingTask(params.task)
    model = task.build_model()
    task.initialize(model)
    saved = toy.tensors(run[0] / "ckpt-7").items()
    [embedding] = [v for name, v in saved if v.shape == (60, 16) and name.startswith("model/")]
    np.testing.assert_array_equal(model.encoder.word_embedding.numpy(), embedding)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train_data": {"input_path": ""}}, "--train_data"),
        ({"model": {"n_token": 61}}, "n_token is 61, but tokenizer.vocab_size .* 60"),
        ({"model": {"preset": "huge"}}, "huge"),
        ({"init_checkpoint": "/nowhere"}, "there is no checkpoint at /nowhere"),
        ({"init_checkpoint": "RUN", "model": {"d_model": 32}}, "does not fit"),
    ],
)
def test_settings_that_do_not_fit_are_refused(run, folder, overrides, message):
    params = toy.short_run(folder, task=overrides)
    if params.task.init_checkpoint == "RUN":
        params.task.init_checkpoint = str(run[0])
    with pytest.raises(UserError, match=message):
        task = pretraining.PretrainingTask(params.task)
        task.initialize(task.build_model())


@pytest.mark.parametrize(
    ("batch_size", "parts", "message"),
    [
        (512, 1, "too few for a batch of 512"),
        (6, 4, "batch_size"),
        (0, 1, "batch_size"),
        (8, 0, "batch_size"),
    ],
)
def test_batches_that_cannot_be_are_refused_before_anything_is_computed(
    folder, monkeypatch, batch_size, parts, message
):
    monkeypatch.setattr(pretraining.PretrainingTask, "build_model", lambda task: pytest.fail("a model"))
    params = toy.short_run(folder, trainer={"accumulation_steps": parts})
    params.task.train_data.global_batch_size = batch_size
    with pytest.raises(UserError, match=message):
        pretraining.pretrain(params, str(folder / "unused"))
    assert not (folder / "unused").exists()


def test_a_step_far_larger_than_the_machine_is_refused_or_warned_of(folder, monkeypatch, caplog):
    params = toy.short_run(folder)
    monkeypatch.setattr(pretraining, "run_training", lambda *unused: {})
    pretraining.pretrain(params, "unused")
    assert not caplog.text
    params.task.model.preset, params.task.train_data.global_batch_size = "large", 1 << 20
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 16)
    with pytest.raises(UserError, match="needs about 47 GB .* has 4: .*--preset=micro") as error:
        pretraining.pretrain(params, "unused")
    fits = re.search(r"--batch_size=(\d+), or --accumulation_steps=(\d+) with", str(error.value))
    assert int(fits[1]) < (1 << 20) * 4.3 / 47 and int(fits[2]) == 16
    params.trainer.check_memory = False
    pretraining.pretrain(params, "unused")
    assert re.search("needs about 47 GB and this machine has .*--preset=micro", caplog.text)
    caplog.clear()
    params.trainer.check_memory, params.trainer.accumulation_steps = True, 16
    pretraining.pretrain(params, "unused")
    assert not caplog.text


def test_a_damaged_record_is_named(folder, tmp_path):
    shutil.copytree(folder / "records", tmp_path / "records")
    shard = sorted((tmp_path / "records").glob("*.tfrecord"))[0]
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    params = toy.short_run(folder, task={"train_data": {"input_path": str(tmp_path / "records")}})
    with pytest.raises(UserError, match=f"{shard.name} has sha256 .* run the builder again"):
        pretraining.pretrain(params, str(tmp_path / "model"))


def test_denoising_has_no_memory(folder, tmp_path):
    manifest = toy.make_records(tmp_path / "records")
    dataclasses.replace(manifest, objective="denoising").save()
    task = toy.short_run(folder).task
    task.validation_data.input_path = ""
    task.train_data.input_path = str(tmp_path / "records")
    with pytest.raises(UserError, match="memory_len is 12, but .* is for denoising.*Set memory_len to 0"):
        pretraining.PretrainingTask(task)
    task.model.memory_len = None
    assert pretraining.PretrainingTask(task).memory_len == 0

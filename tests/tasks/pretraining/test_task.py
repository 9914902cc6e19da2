"""A pretraining run from its settings: what it leaves, how it resumes, what it refuses."""

import dataclasses
import functools
import os
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from run_scripts.common import experiment
from run_scripts.pretrain import SETTINGS
from tests.helpers.command_flags import parsed
from tests.helpers.records.synthetic import make_text_set
from tests.helpers.training import toy
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.checkpoints.of_runs import optimizer_state
from xlnet_tf.config import PRESETS, XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.records.reader import pretraining_dataset
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.checks import check_resumable
from xlnet_tf.training.early_stopping import read_metrics
from xlnet_tf.training.progress import read_history


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretraining")
    toy.make_records(folder / "records")
    toy.make_records(folder / "dev", segments=((5, 4),), seed=1)
    return folder


def settings(folder, **overrides):
    params = pretraining.pretraining_experiment()
    params.override(toy.settings(folder))
    params.override(
        {
            "task": {
                "validation_data": {"input_path": str(folder / "dev")},
                "model": {"n_layer": 1, "dropout": 0.1},
            },
            "trainer": {
                "train_steps": 7,
                "steps_per_loop": 2,
                "validation_interval": 4,
                "checkpoint_interval": 2,
                "max_to_keep": 9,
            },
        }
    )
    params.override(overrides)
    return params


@pytest.fixture(scope="module")
def run(folder):
    """A finished run's folder, settings and last metrics."""
    model_dir = folder / "model"
    params = settings(folder)
    metrics = pretraining.pretrain(params, str(model_dir))
    return model_dir, params, metrics


def test_a_run_reports_its_losses(run):
    model_dir, _, metrics = run
    history = read_history(str(model_dir / "history.jsonl"))
    steps = [(line["step"], line["kind"]) for line in history]
    assert steps == [
        (0, "dev"),
        (2, "train"),
        (2, "dev"),
        (4, "train"),
        (4, "dev"),
        (6, "train"),
        (7, "train"),
        (7, "dev"),
    ]
    assert history[-1]["loss"] == pytest.approx(metrics["loss"])
    assert {"loss", "perplexity", "accuracy", "loss_forward", "loss_backward"} == set(metrics)
    assert history[0]["loss"] == pytest.approx(np.log(60), abs=0.2)
    assert all(line["tokens_per_second"] > 0 for line in history if line["kind"] == "train")


def test_the_folder_of_a_run_is_enough_for_later_tools(run, folder):
    model_dir, params, _ = run
    config = XLNetConfig.from_json_file(str(model_dir / "xlnet_config.json"))
    assert (config.n_token, config.n_layer, config.d_model) == (60, 1, 16)
    assert (model_dir / "spiece.model").read_bytes() == (folder / "records" / "spiece.model").read_bytes()
    assert toy.Manifest.load(model_dir).records == 61
    again = pretraining.pretraining_experiment()
    again.override(settings_file(model_dir / "params.yaml"))
    assert again.as_dict() == params.as_dict()


def settings_file(path):
    from official.modeling.hyperparams import params_dict

    return params_dict.read_yaml_to_params_dict(str(path)).as_dict()


@pytest.mark.integration
def test_a_model_is_loaded_as_it_was_trained(folder):
    options = {"attention_type": "uni", "same_length": True, "clamp_len": 3, "uniform_when_blind": True}
    model_dir = folder / "uni"
    params = settings(folder, task={"model": options}, trainer={"train_steps": 1})
    pretraining.pretrain(params, str(model_dir))
    (model_dir / "spiece.model").unlink()  # the toy records' is a stand-in that no tokenizer can read
    encoder = XLNetPretrainer.from_pretrained(model_dir).encoder
    assert {name: getattr(encoder, name) for name in options} == options


def test_endless_memory_is_never_hidden(folder):
    task = pretraining.PretrainingTask(settings(folder, task={"model": {"endless_memory": True}}).task)
    memory = task.build_memory(2)
    features = {"stream_start": tf.constant([True, False])}
    empty = task.read_memory(memory, features)
    assert empty["memory_mask"].numpy().all() and not empty["memory"].numpy().any()
    memory.write(tf.ones_like(empty["memory"]), tf.ones_like(empty["memory_mask"]))
    full = task.read_memory(memory, features)
    assert full["memory_mask"].numpy().all() and full["memory"].numpy().all()


@pytest.mark.integration
def test_online_permutation_is_for_training_only(tmp_path, small_tokenizer):
    records = make_text_set(tmp_path / "records", small_tokenizer, [[(20, 18), (9, 14)]], stream_segments=3)
    params = settings(
        tmp_path,
        task={
            "permutation": load("--permutation=online").task.permutation,
            "validation_data": {"input_path": str(records.folder), "global_batch_size": 8},
        },
        trainer={"train_steps": 1},
    )
    pretraining.pretrain(params, str(tmp_path / "model"))
    assert [line["kind"] for line in read_history(str(tmp_path / "model/history.jsonl"))] == [
        "dev",
        "train",
        "dev",
    ]
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
    for step in (6, 7):
        for file in killed.glob(f"ckpt-{step}.*"):
            file.unlink()
    state = (killed / "checkpoint").read_text().replace('"ckpt-7"', '"ckpt-4"')
    lines = [line for line in state.splitlines() if "ckpt-6" not in line and "timestamp" not in line]
    (killed / "checkpoint").write_text("\n".join(dict.fromkeys(lines)) + "\n")

    assert pretraining.pretrain(settings(folder), str(killed)) == metrics
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
    ],
)
def test_another_run_in_the_same_folder_is_refused(run, folder, overrides, message):
    with pytest.raises(UserError, match=message) as error:
        resume(settings(folder, **overrides), run[0])
    assert str(run[0]) in str(error.value) and "--model_dir" in str(error.value)


def test_other_records_in_the_same_folder_are_refused(run, folder):
    toy.make_records(folder / "others", seed=5)
    with pytest.raises(UserError, match="records' shards"):
        resume(settings(folder, task={"train_data": {"input_path": str(folder / "others")}}), run[0])


def test_a_configuration_that_was_edited_is_refused(run, folder, tmp_path):
    """Its path is still the same, and so are the shapes."""
    shutil.copytree(run[0], tmp_path / "run")
    config = XLNetConfig.from_json_file(str(run[0] / "xlnet_config.json"))
    path = tmp_path / "config.json"
    settings_path = tmp_path / "run" / "params.yaml"
    settings_path.write_text(settings_path.read_text().replace("config_file: ''", f"config_file: {path}"))
    params = settings(folder, task={"model": {"config_file": str(path)}})
    path.write_text(config.to_json())
    resume(params, tmp_path / "run")
    path.write_text(dataclasses.replace(config, ff_activation="relu").to_json())
    with pytest.raises(UserError, match="architecture's ff_activation: gelu there, relu now"):
        resume(params, tmp_path / "run")


def test_another_machine_may_resume_a_run(run, folder):
    shutil.copytree(folder / "records", folder / "moved")
    params = settings(
        folder,
        task={
            "train_data": {"input_path": str(folder / "moved")},
            "general_data": {"input_path": str(folder / "dev")},
            "validation_data": {"global_batch_size": 4},
        },
        trainer={"accumulation_steps": 2, "steps_per_loop": 7, "checkpoint_interval": 3},
        runtime={"distribution_strategy": "mirrored"},
    )
    resume(params, run[0])


def test_checkpoints_without_settings_are_not_resumed(run, folder, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    (tmp_path / "run" / "params.yaml").unlink()
    with pytest.raises(UserError, match="holds checkpoints but no params.yaml.*put it back"):
        resume(settings(folder), tmp_path / "run")


def test_a_run_without_a_newer_setting_resumes_with_its_default(run, folder, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    path = tmp_path / "run" / "params.yaml"
    lines = [line for line in path.read_text().splitlines() if "permutation" not in line]
    path.write_text("\n".join(lines))
    params = settings(folder)
    task = pretraining.PretrainingTask(params.task)
    check_resumable(params, task, str(tmp_path / "run"))
    params.task.permutation = "online"
    with pytest.raises(UserError, match="task.permutation: precomputed there, online now"):
        check_resumable(params, task, str(tmp_path / "run"))


def test_a_new_run_begins_with_the_weights_of_another(run, folder):
    params = settings(folder, task={"init_checkpoint": str(run[0])})
    task = pretraining.PretrainingTask(params.task)
    model = task.build_model()
    task.initialize(model)
    embeddings = [
        value
        for name, value in toy.tensors(run[0] / "ckpt-7").items()
        if value.shape == (60, 16) and name.startswith("model/")
    ]
    assert len(embeddings) == 1
    np.testing.assert_array_equal(model.encoder.word_embedding.numpy(), embeddings[0])


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
    params = settings(folder, task=overrides)
    if params.task.init_checkpoint == "RUN":
        params.task.init_checkpoint = str(run[0])
    with pytest.raises(UserError, match=message):
        task = pretraining.PretrainingTask(params.task)
        task.initialize(task.build_model())


def test_a_batch_larger_than_the_streams_is_refused_before_anything_is_computed(folder, monkeypatch):
    monkeypatch.setattr(pretraining.PretrainingTask, "build_model", lambda task: pytest.fail("a model"))
    params = settings(folder, task={"train_data": {"global_batch_size": 512}})
    with pytest.raises(UserError, match="too few for a batch of 512"):
        pretraining.pretrain(params, str(folder / "unused"))
    assert not (folder / "unused").exists()


@pytest.mark.parametrize(("batch_size", "dev_batch_size", "parts"), [(6, 8, 4), (0, 8, 1), (8, 8, 0)])
def test_batches_that_do_not_split_are_refused(folder, batch_size, dev_batch_size, parts):
    params = settings(
        folder,
        task={
            "train_data": {"global_batch_size": batch_size},
            "validation_data": {"global_batch_size": dev_batch_size},
        },
        trainer={"accumulation_steps": parts},
    )
    with pytest.raises(UserError, match="batch_size"):
        pretraining.pretrain(params, str(folder / "unused"))
    assert not (folder / "unused").exists()


def load(*arguments):
    values = parsed(lambda: experiment.define_flags(SETTINGS), "--model_dir=unused", *arguments)
    return experiment.load(pretraining.EXPERIMENT, SETTINGS, experiment.run_options(SETTINGS, values))


def test_settings_override_each_other_in_order(tmp_path):
    for name, rate in (("first", 0.1), ("second", 0.2)):
        text = f"trainer:\n  optimizer_config:\n    learning_rate: {rate}\n  max_to_keep: 7\n"
        (tmp_path / name).write_text(text)
    first, second = f"--config_file={tmp_path}/first", f"--config_file={tmp_path}/second"
    override = "--params_override=trainer.optimizer_config.learning_rate=0.4,trainer.max_to_keep=9"

    def rate(*arguments):
        return load(*arguments).trainer.optimizer_config.learning_rate

    assert [rate(), rate(first), rate(first, second), rate(second, first)] == [1e-4, 0.1, 0.2, 0.1]
    assert rate("--learning_rate=0.3", first) == 0.3
    assert rate(override, "--learning_rate=0.3", first) == 0.4
    assert load(first).trainer.max_to_keep == 7 and load(first, override).trainer.max_to_keep == 9
    assert load("--memory_len=0", "--jit_compile").runtime.enable_xla
    assert load("--memory_len=0").task.model.memory_len == 0


@pytest.mark.parametrize(
    ("arguments", "warmup"),
    [
        (["--train_steps=50"], 3),
        (["--params_override=trainer.train_steps=1"], 0),
        (["--train_steps=101"], 100),
        (["--train_steps=50", "--warmup_steps=100"], 100),
        (["--params_override=trainer.train_steps=50,trainer.optimizer_config.warmup_steps=100"], 100),
    ],
)
def test_few_steps_shorten_the_warmup_of_a_recipe_but_no_other(arguments, warmup, caplog):
    assert load("--config_file=micro", *arguments).trainer.optimizer_config.warmup_steps == warmup
    assert ("not the recipe's 100" in caplog.text) == (warmup < 100)


def test_a_step_far_larger_than_the_machine_is_refused_or_warned_of(folder, monkeypatch, caplog):
    params = settings(folder)
    monkeypatch.setattr(pretraining, "run_training", lambda *unused: {})
    pretraining.pretrain(params, "unused")
    assert not caplog.text
    params.task.model.preset, params.task.train_data.global_batch_size = "large", 1 << 20
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 16)
    with pytest.raises(
        UserError, match="needs about 47 GB and this machine has 4: .*--preset=micro"
    ) as error:
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


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--params_override=trainer.train_steps=many", "trainer.train_steps is 'many'"),
        ("--params_override=task.model.memory_len=1.5", "memory_len"),
        ("--params_override=runtime.distribution_strategy=fast", "fast"),
        (
            "--params_override=trainer.optimizer_config.exclude_from_decay=[3]",
            r"decay\[0\] is 3, expected a text",
        ),
        (
            "--params_override=task.train_data.global_batch_size=0",
            r"\(--batch_size\) is 0, expected at least 1",
        ),
        ("--params_override=task.model.dropout=1.0", r"\(--dropout\) is 1.0, expected .*less than 1"),
        ("--config_file=/nowhere.yaml", "/nowhere.yaml: there is no such file"),
        (
            "--config_file=larg_v1",
            "and no such recipe: did you mean large_v1\\? The recipes are adapt, base, ",
        ),
        ("--config_file=x", "no such file and no such recipe. The recipes are .*, glue/sst-2, "),
        ("--config_file=/a.yaml,/b.yaml", "of several files, give each with a flag of its own"),
        ("--params_override=/nowhere.yaml", "/nowhere.yaml: there is no such file; write settings as NAME=V"),
        (
            "--params_override=trainer.trainsteps=3",
            "no setting trainer.trainsteps: .* trainer.train_steps\\?",
        ),
        ("--params_override=train_steps=3", "no setting train_steps: did you mean trainer.train_steps\\?"),
        ("--params_override=task.modle.preset=tiny", "no setting task.modle: did you mean task.model\\?"),
        ("--params_override=batch_size=3", "did you mean task.train_data.global_batch_size\\?"),
        ("--params_override=runtime.zz=3", "no setting runtime.zz, expected one of distribution_strategy, "),
        (
            "--params_override=task.sed=3,trainer.zz=1",
            "setting task.sed: .* task.seed.*no setting trainer.zz",
        ),
        ("--params_override={trainer: {1: 2}}", "no setting trainer.1"),
        ("--params_override={trainer: [", "expected the node content"),
    ],
)
def test_wrong_settings_are_named(argument, message):
    with pytest.raises((UserError, OSError), match=message):
        load(argument)


@pytest.mark.parametrize("recipe", ["micro", "base", "large_v1", "large_v2", "demo", "small_fast"])
def test_recipes_are_valid_by_name_and_as_files(recipe):
    files = [f"--config_file={name}" for name in (recipe, "compat")]
    params = load(*files)
    paths = [f"--config_file={experiment.RECIPES}/{name}.yaml" for name in (recipe, "compat")]
    assert params == load(*paths)
    preset = {"micro": "micro", "base": "base", "demo": "tiny", "small_fast": "tiny"}.get(recipe, "large")
    assert params.task.model.preset == preset and not params.trainer.optimizer_config.bias_correction
    config = params.trainer.optimizer_config
    assert 0 < config.warmup_steps < params.trainer.train_steps


def test_every_preset_can_be_asked_for():
    for name in PRESETS:
        assert (
            load(f"--preset={name}").task.model.architecture(vocab_size=300).d_model == PRESETS[name].d_model
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainer:\n  train_step: 5\n", "no setting trainer.train_step: did you mean trainer.train_steps"),
        ("trainer:\n\ttrain_steps: 5\n", "recipe.yaml: .*found character .* line 2"),
        ("- trainer", "recipe.yaml holds a list; expected settings by their names"),
        (
            "trainer:\n  train_steps: 5\n  optimizer_config: {learning_rate: 1e-4}\n  train_steps: 6\n",
            "recipe.yaml: train_steps is given twice, in lines 2 and 4: keep one of them",
        ),
    ],
)
def test_wrong_files_of_settings_are_named(tmp_path, text, message):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load(f"--config_file={tmp_path}/recipe.yaml")


def test_a_settings_file_may_be_empty(tmp_path):
    (tmp_path / "recipe.yaml").write_text("# train_steps: 5\n")
    assert load(f"--config_file={tmp_path}/recipe.yaml") == load()


def test_a_damaged_record_is_named(folder, tmp_path):
    shutil.copytree(folder / "records", tmp_path / "records")
    shard = sorted((tmp_path / "records").glob("*.tfrecord"))[0]
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    params = settings(folder, task={"train_data": {"input_path": str(tmp_path / "records")}})
    with pytest.raises(UserError, match=f"{shard.name} has sha256 .* run the builder again"):
        pretraining.pretrain(params, str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"max_general_rise": 0.5}, "max_general_rise is 0.5, and there is no task.general_data"),
        ({"keep_best": True}, "task.keep_best keeps .* dev records, and there are none: give --dev_data"),
        ({"general_data": {"input_path": "x"}}, "task.general_data is evaluated along with .*: give both"),
    ],
)
def test_what_evaluations_decide_needs_records_to_evaluate(folder, task, message):
    params = settings(folder, task={"validation_data": {"input_path": ""}, **task})
    with pytest.raises(UserError, match=message):
        pretraining.build_task(params)


def test_a_step_of_a_run_with_general_text_is_built_without_evaluations(folder):
    """As it is to be compiled for a TPU."""
    data = {"general_data": {"input_path": str(folder / "dev")}, "validation_data": {"input_path": ""}}
    params = settings(folder, task={**data, "max_general_rise": 0.5, "keep_best": True})
    assert pretraining.PretrainingTask(params.task).data.general


def test_denoising_has_no_memory(folder, tmp_path):
    manifest = toy.make_records(tmp_path / "records")
    dataclasses.replace(manifest, objective="denoising").save()
    task = settings(folder).task
    task.validation_data.input_path = ""
    task.train_data.input_path = str(tmp_path / "records")
    with pytest.raises(UserError, match="memory_len is 12, but .* is for denoising.*Set memory_len to 0"):
        pretraining.PretrainingTask(task)
    task.model.memory_len = None
    assert pretraining.PretrainingTask(task).memory_len == 0


@pytest.fixture(scope="module")
def adapted(folder, run):
    """A run that continues from another's weights and moments, and is evaluated on general text, too."""
    toy.make_records(folder / "general", segments=((7, 6),), seed=2)
    model_dir = folder / "adapted"
    params = settings(
        folder,
        task={
            "init_checkpoint": str(run[0] / "ckpt-6"),
            "general_data": {"input_path": str(folder / "general")},
            "keep_best": True,
        },
        trainer={"optimizer_config": {"updates_before": 6, "warmup_steps": 2, "learning_rate": 1e-3}},
    )
    pretraining.pretrain(params, str(model_dir))
    return model_dir, params


@pytest.mark.integration
def test_losses_on_domain_and_general_text_are_those_of_each_alone(folder, run, adapted):
    """At step 0, with the same weights, each as a run that knows only one of the sets has it."""
    first = next(line for line in read_history(str(adapted[0] / "history.jsonl")) if line["kind"] == "dev")
    for name, dev in (("loss", "dev"), ("general_loss", "general")):
        alone = settings(
            folder,
            task={
                "init_checkpoint": str(run[0] / "ckpt-6"),
                "validation_data": {"input_path": str(folder / dev)},
            },
            trainer={"train_steps": 1, "optimizer_config": {"learning_rate": 0.0}},
        )
        alone_dir = folder / f"alone_{dev}"
        pretraining.pretrain(alone, str(alone_dir))
        expected = read_history(str(alone_dir / "history.jsonl"))[0]["loss"]
        assert first[name] == pytest.approx(expected, rel=1e-5)


def test_general_text_counts_for_its_own_loss_alone():
    rng = np.random.default_rng(0)
    task = types.SimpleNamespace(data=types.SimpleNamespace(general=object()), next_sentence=True)
    task.sums = functools.partial(pretraining.PretrainingTask.sums, task)
    outputs = {
        "logits": tf.constant(rng.normal(size=[5, 3, 11]), tf.float32),
        "target_ids": tf.constant(rng.integers(0, 11, [5, 3]), tf.int32),
        "target_weights": tf.constant(rng.integers(0, 2, [5, 3]), tf.float32),
        "next_sentence_logits": tf.constant(rng.normal(size=[5, 2]), tf.float32),
    }
    features = {
        "direction": tf.constant([1, -1, -1, 1, 1]),
        "next_sentence": tf.constant([1, 0, -1, 0, 1]),
        "is_general": tf.constant([False, True, False, False, True]),
    }

    def means(sums):
        return {name: float(total / count) for name, (total, count) in sums.items()}

    found = means(pretraining.PretrainingTask.validation_sums(task, features, outputs))
    general_loss = found.pop("general_loss")
    for rows, expected in (([0, 2, 3], found), ([1, 4], {"loss": general_loss})):
        of_rows = [
            {name: tf.gather(value, rows) for name, value in part.items()} for part in (features, outputs)
        ]
        alone = means(task.sums(*of_rows))
        assert {name: alone[name] for name in expected} == pytest.approx(expected, nan_ok=True)


@pytest.mark.integration
def test_moments_are_taken_over_and_the_schedule_begins_anew(run, adapted):
    model_dir, params = adapted
    history = [line for line in read_history(str(model_dir / "history.jsonl")) if line["kind"] == "train"]
    # Of the second step of the warm-up, and of the last of five that it decays in.
    assert history[0]["learning_rate"] == pytest.approx(5e-4)
    assert history[-1]["learning_rate"] == pytest.approx(2e-4)
    last = toy.tensors(model_dir / "ckpt-7")
    assert last["optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE"] == 6 + 7
    assert last["global_step/.ATTRIBUTES/VARIABLE_VALUE"] == 7
    # With no learning rate a step changes the moments alone: by beta_1 of what they were, and a gradient.
    still = settings(
        model_dir.parent,
        task={"init_checkpoint": params.task.init_checkpoint},
        trainer={
            "train_steps": 1,
            "optimizer_config": {
                "updates_before": 6,
                "learning_rate": 0.0,
                "clip_norm": 1e-9,
                "weight_decay": 0.0,
            },
        },
    )
    pretraining.pretrain(still, str(model_dir.parent / "still"))
    before, after = toy.tensors(run[0] / "ckpt-6"), toy.tensors(model_dir.parent / "still" / "ckpt-1")
    moments = [name for name in before if re.search(r"optimizer/_variables/\d+/", name)]
    assert len(moments) > 20
    ratios = [after[name].sum() / before[name].sum() for name in moments if abs(before[name].sum()) > 1e-3]
    assert ratios and all(min(abs(ratio - beta) for beta in (0.9, 0.999)) < 1e-3 for ratio in ratios)


def test_moments_that_are_not_there_are_refused(folder, run):
    params = settings(
        folder,
        task={"init_checkpoint": str(run[0] / "ckpt-4")},
        trainer={"optimizer_config": {"updates_before": 6}},
    )
    with pytest.raises(
        UserError, match="updates_before is 6: expected the moments .* found those of 4 updates"
    ):
        pretraining.pretrain(params, str(folder / "refused"))


@pytest.mark.integration
def test_the_best_weights_are_kept_and_found(adapted):
    model_dir, _ = adapted
    dev = [line for line in read_history(str(model_dir / "history.jsonl")) if line["kind"] == "dev"]
    kept = read_metrics(str(model_dir / "best"))
    counted = [line for line in dev if line["step"] in (4, 7)]
    assert kept["loss"] == min(line["loss"] for line in counted)
    checkpoint = open_checkpoint(str(model_dir))
    assert "/best/" in checkpoint.path
    assert optimizer_state(checkpoint).path == str(model_dir / f"ckpt-{kept['step']}")


@pytest.mark.integration
def test_a_run_that_forgets_ends_and_keeps_what_was_within_the_bound(folder, run):
    """And so it does when it is started again, where the general text has been moved to."""
    model_dir = folder / "forgets"
    shutil.copytree(folder / "general", folder / "moved general")
    for general in ("general", "moved general"):
        params = settings(
            folder,
            task={
                "init_checkpoint": str(run[0] / "ckpt-6"),
                "general_data": {"input_path": str(folder / general)},
                "max_general_rise": 0.05,
                "keep_best": True,
            },
            trainer={"train_steps": 40, "optimizer_config": {"learning_rate": 0.3}},
        )
        pretraining.pretrain(params, str(model_dir))
        dev = [line for line in read_history(str(model_dir / "history.jsonl")) if line["kind"] == "dev"]
        first, *_, last = dev
        assert last["step"] < 40 and last["general_loss"] > first["general_loss"] + 0.05
        kept = read_metrics(str(model_dir / "best"))
        assert not kept or kept["general_loss"] <= first["general_loss"] + 0.05


@pytest.mark.integration
def test_a_run_that_resumes_with_other_general_text_says_what_it_compares(folder, run, caplog):
    """Also once weights were kept after the change."""
    for name, seed in (("first text", 2), ("other text", 3)):
        toy.make_records(folder / name, segments=((7, 6),), seed=seed)
    model_dir, said = folder / "changes its text", []
    for name in ("first text", "other text", "first text", "other text"):
        data = {
            "general_data": {"input_path": str(folder / name)},
            "max_general_rise": 9.0,
            "keep_best": True,
        }
        params = settings(folder, task={"init_checkpoint": str(run[0] / "ckpt-6"), **data})
        caplog.clear()
        task = pretraining.PretrainingTask(params.task)
        check_resumable(params, task, str(model_dir))
        said.append("max_general_rise compares losses on two different texts" in caplog.text)
        if name == "first text" and len(said) == 1:
            pretraining.pretrain(params, str(model_dir))
        if len(said) == 2:
            task.after_evaluation(task.build_model(), {"loss": 0.0, "general_loss": 0.0}, 8, str(model_dir))
            assert read_metrics(str(model_dir / "best"))["step"] == 8
    assert said == [False, True, False, True]

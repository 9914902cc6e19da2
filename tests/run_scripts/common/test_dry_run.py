"""What --dry_run checks, says and leaves alone."""

import importlib.util
import json
import math
import re
import shutil
import types

import pytest
import tensorflow as tf
import yaml
from official.core import exp_factory, task_factory

from run_scripts import pretrain
from run_scripts.common import dry_run, experiment, help_screens
from tests.conftest import REPOSITORY
from tests.helpers.command_flags import parsed
from tests.helpers.training import toy, toy_finetuning
from tests.helpers.training.layouts import build_trainer
from tests.helpers.training.worker import settings
from tests.tasks import test_batching
from xlnet_tf.errors import UserError
from xlnet_tf.tasks import finetuning, sweep
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.tpu import compilation, steps
from xlnet_tf.tpu.lowering import Program
from xlnet_tf.training import runtime
from xlnet_tf.training.config import flatten

compiles = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"),
    reason="libtpu is not installed: pip install -r requirements-tpu-compile.txt",
)


class Compiler:
    """Stands for libtpu: answers with `outcome` of what the step of a length is lowered to."""

    def __init__(self, monkeypatch):
        self.outcome = lambda hlo, topology: compiled(1.0)
        monkeypatch.setattr(compilation, "check_installed", lambda: None)
        monkeypatch.setattr(compilation, "compile_program", lambda *asked: self.outcome(*asked))
        monkeypatch.setattr(steps, "training_step", lambda params, length: Program(length))
        monkeypatch.setattr(Program, "loops_with_products", lambda program: 0)


def compiled(seconds, arguments=0):
    return compilation.Compiled(arguments, 0, 0, 0, 0, 1e12, 1e9, seconds, 1.0)


@pytest.fixture
def compiler(monkeypatch):
    return Compiler(monkeypatch)


@pytest.fixture
def folder(tmp_path):
    for name, segments in (("records", ((20, 18), (9, 14))), ("dev", ((12, 8), (8, 6)))):
        toy.make_records(tmp_path / name, segments)
    return tmp_path


def pretraining_run(folder, **overrides):
    params = settings(folder)
    params.override(overrides)
    return params, pretraining.build_task(params)


def test_a_run_on_this_machine_is_described_and_nothing_is_written(folder, capsys):
    params, task = pretraining_run(folder)
    dry_run.check_and_print(params, task, None, str(folder / "model"))
    rows = dict(line.strip().split("  ", 1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert rows["devices"] == "1 replica on this machine"
    assert rows["batch"] == r"8: 8 a replica in 1 micro-batch(es), 8 a host"
    assert rows["steps"] == "12, 2 in a loop" and rows["memory"] == "12 tokens a row"
    assert rows["tokens"] == f"{12 * 8 * 16:,}: the data {12 * 8 / 61:.2f} times"
    weights = sum(weight.shape.num_elements() for weight in task.build_model().trainable_variables)
    assert rows["parameters"] == f"{weights:,}"
    assert not (folder / "model").exists()


def fine_tuning_run(tmp_path, tokenizer, count, **data):
    """Returns the settings of the toy task on so many examples."""
    params = toy_finetuning.experiment()
    params.task.train_data.override({"input_path": str(tmp_path / "train"), **data})
    toy_finetuning.make_examples(tmp_path / "train", tokenizer, count)
    return params


def test_fine_tuning_is_described_and_a_finished_seed_that_is_trained_again(
    tmp_path, small_tokenizer, capsys
):
    params, model_dir = fine_tuning_run(tmp_path, small_tokenizer, 20), tmp_path / "model"
    task = finetuning.build_task(params, toy_finetuning.ToyTask)
    dry_run.check_and_print(params, task, None, str(model_dir))
    text = capsys.readouterr().out
    assert "20 records of 10 tokens" in text and "memory  none" in text and "20, 3 in a loop" in text
    for is_there in (False, True):
        if is_there:
            model_dir.mkdir()
            shutil.copy(tmp_path / "train/manifest.json", model_dir)
            (model_dir / "params.yaml").write_text(yaml.dump(params.as_dict()))
        planned = sweep.trainings([({}, params)], toy_finetuning.ToyTask, str(model_dir), 2)
        dry_run.check_and_print_all(planned, None)
        said = f"WARNING: {model_dir} has a run of one seed, which --num_seeds=2 does not resume: seed 0 is"
        assert (said in capsys.readouterr().out) == is_there


@pytest.mark.parametrize(
    ("dtype", "save_memory"),
    [("float16", True), pytest.param("float32", False, marks=pytest.mark.integration)],
)
def test_a_checkpoint_takes_the_estimated_space(folder, dtype, save_memory):
    overrides = {"trainer": {"save_memory": save_memory}, "runtime": {"mixed_precision_dtype": dtype}}
    with runtime.number_type(dtype):
        trainer = build_trainer(folder, tf.distribute.OneDeviceStrategy("CPU:0"), overrides)
    reader = tf.train.load_checkpoint(trainer.checkpoint.write(str(folder / "checkpoint")))
    types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    stored = sum(math.prod(shapes[name]) * types[name].size for name in shapes if not name.startswith("_"))
    weights = sum(weight.shape.num_elements() for weight in trainer.model.trainable_variables)
    said = dry_run.checkpoint_bytes(trainer.config, trainer.task, weights)
    assert 0 < stored - said < 100  # steps, counters, the learning rate


@pytest.mark.parametrize("left", [0, -1])
def test_the_evaluations_memory_takes_its_part_of_a_core(folder, compiler, left):
    """Of 4 rows a replica, 12 tokens, 1 layer of 16; a byte for each token says whether it is hidden."""
    held = 4 * 12 * (1 * 16 * 4 + 1)
    compiler.outcome = lambda hlo, topology: compiled(0.5, topology.hbm_bytes - held - left)
    params, task = pretraining_run(folder, task={"validation_data": {"global_batch_size": 32}})
    where = dry_run.machines(params.runtime, "v3-8")
    if left < 0:
        with pytest.raises(UserError, match="memory of the evaluation's rows.*lower --dev_batch_size, 32"):
            dry_run.compiled(params, task, where)
    else:
        assert "0.00 GB more, 100% of the core in all" in dry_run.compiled(params, task, where)
        params.task.validation_data.input_path = ""
        assert "more" not in dry_run.compiled(params, task, where)


def test_the_step_of_a_run_with_an_alert_is_compiled(tmp_path, small_tokenizer, compiler, monkeypatch):
    """Its task needs the dev examples, on which it finds the alert's threshold."""
    for seed, split in enumerate(("train", "dev")):
        test_batching.write_examples(tmp_path / split, "classification", small_tokenizer, seed)
    params = test_batching.settings(tmp_path, "classification", alert={"label": "1"})
    make = task_factory.get_task_cls(type(params.task))
    monkeypatch.setattr(steps, "training_step", lambda params, length: make(params.task) and Program(b""))
    task = finetuning.build_task(params, make)
    shown = dry_run.compiled(params, task, dry_run.machines(params.runtime, "v3-8"))
    assert "One pass over the data" in shown


def test_the_steps_of_all_lengths_are_compiled(tmp_path, small_tokenizer, compiler):
    seconds = {8: 0.5, 10: 2.0}
    compiler.outcome = lambda length, topology: compiled(seconds[length])
    params = fine_tuning_run(tmp_path, small_tokenizer, 61, lengths=[*seconds])
    task = finetuning.build_task(params, toy_finetuning.ToyTask)
    text = dry_run.compiled(params, task, dry_run.machines(params.runtime, "v3-8"))
    assert "1 x 8" in text and "1 x 10" in text
    epoch = [task.data.batching(training=True).batches.length(step) for step in range(8)]
    assert {*epoch} == {8, 10}
    total = sum(seconds[length] for length in epoch)
    assert f"One pass over the data, 8 steps, takes {total:.1f} s by these estimates." in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.",
         "4 rows in 2 micro-batch.* not fit .* v3-8. raise --accumulation_steps, add --recompute.*hbm"),
        ("INVALID_ARGUMENT: no such operation", "does not compile for a core of v3-8: INVALID_ARGUMENT"),
    ],
)  # fmt: skip
def test_a_refused_step_is_distinguished_from_one_that_is_too_large(folder, compiler, error, said):
    compiler.outcome = lambda *_: compilation.NotCompiled(error)
    sizes = {"train_data": {"global_batch_size": 32}}
    params, task = pretraining_run(folder, task=sizes, trainer={"accumulation_steps": 2})
    with pytest.raises(UserError, match=f"(?is){said}"):
        dry_run.compiled(params, task, dry_run.machines(params.runtime, "v3-8"))


def test_a_slice_that_the_batch_or_the_streams_do_not_fit_is_refused(folder, compiler):
    for rows, message in ((8, "8 with 32 replicas"), (32, "too few for a batch of 32")):
        sizes = {name: {"global_batch_size": rows} for name in ("train_data", "validation_data")}
        params, task = pretraining_run(folder, task=sizes)
        where = dry_run.machines(params.runtime, "v3-32")
        assert where.hosts == 4
        with pytest.raises(UserError, match=message):
            dry_run.check(params, task, where, str(folder / "model"))


@pytest.mark.parametrize(
    ("trainer", "model_dir", "message"),
    [
        ({"patience": 2}, "model", "--patience.* counts evaluations, and there are no dev examples"),
        ({"profile_steps": "9"}, "model", "profile_steps is '9': expected the first and the last step"),
        ({}, "model[1]", r"has \[ in its name: TensorFlow takes that as a pattern"),
        ({}, "another tokenizer", "put the tokenizer back"),
    ],
)
def test_what_a_run_would_refuse_at_once_is_found(folder, trainer, model_dir, message):
    params, task = pretraining_run(folder, trainer=trainer, task={"validation_data": {"input_path": ""}})
    if model_dir == "another tokenizer":
        (folder / "records" / "spiece.model").write_bytes(b"another")
    with pytest.raises(UserError, match=message):
        dry_run.check(params, task, dry_run.machines(params.runtime, None), str(folder / model_dir))


def test_a_tpu_must_be_named_and_is_no_slice_of_several_machines(folder):
    params, _ = pretraining_run(folder, runtime={"distribution_strategy": "tpu", "tpu": "local"})
    assert dry_run.machines(params.runtime, "v3-8").hosts == 1
    for topology, message in ((None, "--topology=v3-8"), ("v3-32", "v3-32 has 4: give the TPU's name")):
        with pytest.raises(UserError, match=message):
            dry_run.machines(params.runtime, topology)


@pytest.mark.integration
def test_the_manuals_run_on_a_slice_fits_together(tmp_path, compiler):
    """The command as BUILD.md has it, with a model and records that are smaller."""
    for name in ("train", "dev"):
        toy.make_records(tmp_path / name, segments=((1024, 1024),), stream_segments=1)
    manual = (REPOSITORY / "BUILD.md").read_text(encoding="utf-8").replace("\\\n", "")
    [command] = re.findall(
        r"^.venv/bin/python -m run_scripts.pretrain (.*--topology=v3-32.*large_v1.*)", manual, re.M
    )
    arguments = command.replace("gs://BUCKET/records", str(tmp_path)).replace("--tpu=NAME", "").split()

    def define():
        experiment.define_flags(pretrain.SETTINGS)
        experiment.define_dry_run_flags()

    values = parsed(define, *arguments, "--preset=tiny", "--memory_len=8")
    options = experiment.run_options(pretrain.SETTINGS, values)
    params = experiment.load(pretraining.EXPERIMENT, pretrain.SETTINGS, options)
    task = pretraining.build_task(params)
    rows = dry_run.check(
        params, task, dry_run.machines(params.runtime, values.topology), str(tmp_path / "model")
    )
    assert r"2048: 64 a replica in 4 micro-batch(es), 512 a host" in rows
    assert (
        params.trainer.recompute and params.trainer.checkpoint_interval % params.trainer.steps_per_loop == 0
    )
    assert params.trainer.save_memory


@pytest.mark.integration
def test_other_hosts_are_counted_not_waited_for(folder, monkeypatch):
    cluster = {"worker": ["one:1", "two:1"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    params, task = pretraining_run(folder, runtime={"distribution_strategy": "multi_worker_mirrored"})
    where = dry_run.machines(params.runtime, None)
    assert (where.hosts, where.replicas) == (2, 2)
    rows = dry_run.check(params, task, where, str(folder / "model"))
    assert r"8: 4 a replica in 1 micro-batch(es), 4 a host" in rows
    assert re.search(
        r"host memory for its copy +0\.00 GB on the first host, 0\.00 GB on each of the others", rows
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    ("strategy", "tpu", "needed"),
    [
        ("one_device", None, "--strategy=tpu and --tpu=NAME (or --tpu=local on a TPU VM)"),
        ("tpu", None, "--tpu=NAME (or --tpu=local on a TPU VM)"),
        ("tpu", "local", None),
    ],
)
def test_remaining_needs_of_a_tpu_run_are_listed(folder, capsys, compiler, strategy, tpu, needed):
    params, task = pretraining_run(folder, runtime={"distribution_strategy": strategy, "tpu": tpu})
    dry_run.check_and_print(params, task, "v3-8", str(folder / "model"))
    more = f" The run itself also needs {needed}." if needed else ""
    assert capsys.readouterr().out.splitlines()[-1] == f"Everything fits. Nothing was trained.{more}"


@compiles
def test_the_step_is_compiled_for_the_slice(folder, capsys):
    params, task = pretraining_run(folder)
    dry_run.check_and_print(params, task, "v3-8", str(folder / "model"))
    text = capsys.readouterr().out
    assert "v3-8: 4 chips, 8 replicas, 1 hosts" in text and "8: 1 a replica" in text
    assert "temporaries" in text and "Everything fits. Nothing was trained." in text


def test_the_whole_training_has_its_hours_and_price(folder):
    params, task = pretraining_run(folder)
    params.trainer.train_steps, params.trainer.max_hours = 7200, 1.5
    outcome = types.SimpleNamespace(estimated_seconds=1.0, is_at_peak=False)
    batches = [types.SimpleNamespace(length=None, outcome=outcome)]
    where = dry_run.machines(params.runtime, "v3-8")
    text = dry_run._duration(params, task, where, batches, price_per_hour=9.6)
    assert "The training, 7,200 steps, takes 2.00 h and costs 19.20." in text
    assert "WARNING: --max_hours=1.5 ends it before its last step." in text


def test_help_shows_the_values_that_pretraining_begins_with():
    defaults = flatten(exp_factory.get_exp_config(pretraining.EXPERIMENT).as_dict())
    fields = {setting.flag: setting.field for setting in pretrain.SETTINGS}
    shown = help_screens.PRETRAIN_DEFAULTS
    assert shown == {flag: str(defaults[fields[flag]]) for flag in shown}

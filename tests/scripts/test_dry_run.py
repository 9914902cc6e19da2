"""What --dry_run checks, says and leaves alone."""

import importlib.util
import json

import pytest

from run_scripts import dry_run
from tests.tasks import toy_finetuning
from tests.training import toy
from tests.training.worker import settings
from xlnet_tf.errors import UserError
from xlnet_tf.tasks import finetuning, pretraining

compiles = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"),
    reason="libtpu is not installed: pip install -r requirements-tpu-compile.txt",
)


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
    assert rows["batch"] == "8: 8 a replica in 1 part(s), 8 a host"
    assert rows["steps"] == "12, 2 in a loop" and rows["memory"] == "12 tokens a row"
    assert rows["tokens"] == f"{12 * 8 * 16:,}: the data {12 * 8 / 61:.2f} times"
    weights = sum(weight.shape.num_elements() for weight in task.build_model().trainable_variables)
    assert rows["parameters"] == f"{weights:,}"
    assert not (folder / "model").exists()


def test_fine_tuning_is_described(tmp_path, small_tokenizer, capsys):
    path = tmp_path / "spiece.model"
    path.write_bytes(small_tokenizer.model_proto)
    params = toy_finetuning.experiment()
    params.task.train_data.input_path = str(tmp_path / "train")
    toy_finetuning.make_examples(tmp_path / "train", small_tokenizer, 20)
    task = finetuning.build_task(params, toy_finetuning.ToyTask)
    dry_run.check_and_print(params, task, None, str(tmp_path / "model"))
    text = capsys.readouterr().out
    assert "20 records of 10 tokens" in text and "memory  none" in text and "20, 3 in a loop" in text


def test_a_slice_that_the_batch_does_not_fit_is_refused(folder):
    params, task = pretraining_run(folder)
    where = dry_run.machines(params.runtime, "v3-32")
    with pytest.raises(UserError, match="8 with 32 replicas"):
        dry_run.check(params, task, where, str(folder / "model"))


def test_too_few_streams_are_found(folder):
    sizes = {"train_data": {"global_batch_size": 32}, "validation_data": {"global_batch_size": 32}}
    params, task = pretraining_run(folder, task=sizes)
    where = dry_run.machines(params.runtime, "v3-32")
    assert where.hosts == 4
    with pytest.raises(UserError, match="too few for a batch of 32"):
        dry_run.check(params, task, where, str(folder / "model"))


def test_another_tokenizer_is_found(folder):
    params, task = pretraining_run(folder)
    (folder / "records" / "spiece.model").write_bytes(b"another")
    with pytest.raises(UserError, match="put the tokenizer back"):
        dry_run.check(params, task, dry_run.machines(params.runtime, None), str(folder / "model"))


def test_a_tpu_must_be_named(folder):
    params, _ = pretraining_run(folder, runtime={"distribution_strategy": "tpu", "tpu": "local"})
    with pytest.raises(UserError, match="--topology=v3-8"):
        dry_run.machines(params.runtime, None)


def test_one_machine_is_no_slice_of_several(folder):
    params, _ = pretraining_run(folder, runtime={"distribution_strategy": "tpu", "tpu": "local"})
    assert dry_run.machines(params.runtime, "v3-8").hosts == 1
    with pytest.raises(UserError, match="v3-32 has 4: give the TPU's name"):
        dry_run.machines(params.runtime, "v3-32")


def test_other_hosts_are_counted_not_waited_for(folder, monkeypatch):
    cluster = {"worker": ["one:1", "two:1"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    params, task = pretraining_run(folder, runtime={"distribution_strategy": "multi_worker_mirrored"})
    where = dry_run.machines(params.runtime, None)
    assert (where.hosts, where.replicas) == (2, 2)
    assert "8: 4 a replica in 1 part(s), 4 a host" in dry_run.check(
        params, task, where, str(folder / "model")
    )


@pytest.mark.parametrize(
    ("strategy", "tpu", "needed"),
    [
        ("one_device", None, "--strategy=tpu and --tpu=NAME (or --tpu=local on a TPU VM)"),
        ("tpu", None, "--tpu=NAME (or --tpu=local on a TPU VM)"),
        ("tpu", "local", None),
    ],
)
def test_what_the_run_on_a_tpu_still_needs_is_said(folder, capsys, monkeypatch, strategy, tpu, needed):
    monkeypatch.setattr(dry_run, "compiled", lambda params, where: "")
    params, task = pretraining_run(folder, runtime={"distribution_strategy": strategy, "tpu": tpu})
    dry_run.check_and_print(params, task, "v3-8", str(folder / "model"))
    last = capsys.readouterr().out.splitlines()[-1]
    expected = "Everything fits. Nothing was trained."
    assert last == (expected + f" The run itself also needs {needed}." if needed else expected)


@compiles
def test_the_step_is_compiled_for_the_slice(folder, capsys):
    params, task = pretraining_run(folder)
    dry_run.check_and_print(params, task, "v3-8", str(folder / "model"))
    text = capsys.readouterr().out
    assert "v3-8: 4 chips, 8 replicas, 1 hosts" in text and "8: 1 a replica" in text
    assert "temporaries" in text and "Everything fits. Nothing was trained." in text

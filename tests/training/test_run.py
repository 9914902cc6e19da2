"""How a run ends and resumes, and where it writes."""

import contextlib
import io
import json
import os
import signal
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import yaml
from official.core import task_factory

from tests.helpers.full_disk import files_of_at_most
from tests.helpers.training import toy_finetuning
from tests.helpers.training.worker import after_reports, ends_itself, settings
from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.errors import Cancelled, Interrupted, UserError
from xlnet_tf.tasks import finetuning
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.checks import check_data, check_resumable
from xlnet_tf.training.interruption import named_damage
from xlnet_tf.training.profile import Profile
from xlnet_tf.training.progress import Progress, read_history
from xlnet_tf.training.run import run_training
from xlnet_tf.training.trainer import Trainer


@pytest.mark.integration
def test_sigterm_saves_and_the_run_resumes(folder, capsys):
    """The same run writes a trace of two of its steps."""
    params = settings(folder)
    params.trainer.profile_steps = "4,5"
    before = signal.getsignal(signal.SIGTERM)
    stopped = pytest.raises(Interrupted, match=r"SIGTERM at step 7.*start the same command again")
    with stopped, after_reports(ends_itself(signal.SIGTERM, 7)):  # the trace ended a loop at step 5
        pretraining.pretrain(params, str(folder / "model"))
    assert signal.getsignal(signal.SIGTERM) is before
    assert "Step 7 of 12" in (page := (folder / "model" / "report.html").read_text())
    assert "start the same command again" in page and "written anew" not in page
    assert tf.train.latest_checkpoint(str(folder / "model")).endswith("ckpt-7")
    assert "1 replica on CPU:0" in capsys.readouterr().err
    (trace,) = (folder / "model").glob("plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 10_000

    pretraining.pretrain(settings(folder), f"{folder}/model/")  # as a shell completes it
    lines = read_history(str(folder / "model" / "history.jsonl"))
    trained = [line["step"] for line in lines if line["kind"] == "train"]
    assert trained == [2, 3, 4, 5, 7, 8, 10, 12]
    evaluated = [line["step"] for line in lines if line["kind"] == "dev"]
    assert evaluated == [0, 2, 4, 7, 8, 12]  # a run that resumes begins with an evaluation


@pytest.mark.integration
def test_a_checkpoint_without_memory_resumes_with_empty_memory(folder, capsys):
    model_dir = folder / "without_memory"
    with pytest.raises(Interrupted), after_reports(ends_itself(signal.SIGTERM, 4)):
        pretraining.pretrain(settings(folder, save_memory=False), str(model_dir))
    pretraining.pretrain(settings(folder), str(model_dir))
    assert "save_memory is false, or was): it begins empty" in capsys.readouterr().err
    sizes = [
        sum(np.prod(shape) for name, shape in tf.train.list_variables(str(path)) if "memory" in name)
        for path in (model_dir / "ckpt-4", model_dir / "ckpt-12")
    ]
    assert sizes == [0, 1 * 8 * 12 * 16 + 8 * 12]


@pytest.mark.parametrize("steps", ["5", "5,4", "0,3", "a,b", "1,2,3"])
def test_wrong_steps_to_trace_are_named(steps):
    with pytest.raises(UserError, match="profile_steps"):
        Profile(steps, "unused")


@pytest.mark.integration
def test_a_run_whose_hours_are_used_saves_and_resumes_with_more(folder, capsys):
    pretraining.pretrain(settings(folder, max_hours=1e-9), str(folder / "hours"))
    assert "1e-09 h, its --max_hours: it ends at step" in capsys.readouterr().err
    step = int(newest(str(folder / "hours")).rpartition("-")[2])
    assert 0 < step < 12
    pretraining.pretrain(settings(folder), str(folder / "hours"))
    assert newest(str(folder / "hours")).endswith("ckpt-12")


@pytest.mark.integration
def test_a_run_in_a_bucket(folder, tmp_path, bucket, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    metrics = pretraining.pretrain(settings(folder), bucket)
    names = {path.rpartition("/")[2] for path in tf.io.gfile.glob(f"{bucket}/*")}
    assert {"params.yaml", "history.jsonl", "checkpoint", "ckpt-12.index", "spiece.model"} <= names
    assert tf.io.gfile.glob(f"{bucket}/train/events*") and tf.io.gfile.glob(f"{bucket}/validation/events*")
    assert pretraining.pretrain(settings(folder), bucket) == metrics  # restored, nothing left to do
    assert "begins empty" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
def test_loops_of_steps_end_at_early_evaluations_and_at_checkpoints(folder, tmp_path):
    """Of 12 steps, with loops of 2."""
    params = settings(folder, checkpoint_interval=3, validation_interval=8, max_to_keep=9)
    pretraining.pretrain(params, str(tmp_path))
    history = read_history(str(tmp_path / "history.jsonl"))
    assert [line["step"] for line in history if line["kind"] == "dev"] == [0, 2, 4, 8, 12]
    assert [line["step"] for line in history if line["kind"] == "train"] == [2, 3, 4, 6, 8, 9, 11, 12]
    saved = {int(path.stem.removeprefix("ckpt-")) for path in tmp_path.glob("ckpt-*.index")}
    assert saved == {3, 6, 9, 12}


@pytest.mark.integration
def test_a_run_whose_disk_is_full_is_one_error_and_resumes(folder, tmp_path, monkeypatch):
    with contextlib.ExitStack() as full, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", io.StringIO())  # pytest writes it to a file
        fill_disk = lambda step: full.enter_context(files_of_at_most(10)) if step == 10 else None  # noqa: E731
        message = f"^(cannot write )?{tmp_path}/cut.*File too large"
        with after_reports(fill_disk), pytest.raises(UserError, match=message):
            pretraining.pretrain(settings(folder), str(tmp_path / "cut"))
    pretraining.pretrain(settings(folder), str(tmp_path / "cut"))
    assert read_history(str(tmp_path / "cut/history.jsonl"))[-1]["step"] == 12


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("save_memory", False, "trainer.save_memory: True there, False now"),
        ("spike_factor", 3.0, "trainer.spike_factor: 0.0 there, 3.0 now"),
        ("accumulation_steps", 2, "trainer.accumulation_steps: 1 there, 2 now"),
        (None, None, ""),
    ],
)
def test_changed_trainer_settings_are_logged(folder, tmp_path, caplog, setting, value, said):
    params = settings(folder)
    task = pretraining.PretrainingTask(params.task)
    task.save_assets(str(tmp_path))
    (tmp_path / "params.yaml").write_text(yaml.dump(params.as_dict()))
    (tmp_path / "ckpt-4.index").write_bytes(b"")
    if setting:
        setattr(params.trainer, setting, value)
    caplog.set_level("WARNING", logger="absl")
    check_resumable(params, task, str(tmp_path))
    assert said in caplog.text and bool(said) == bool(caplog.text)


def test_every_host_refuses_another_run(folder, tmp_path):
    """If the chief alone did, the others would take it for lost, and be started again for ever."""
    params = settings(folder)
    (tmp_path / "params.yaml").write_text(yaml.dump(params.as_dict()))
    (tmp_path / "ckpt-4.index").write_bytes(b"")
    params.trainer.optimizer_config.learning_rate *= 2
    strategy = mock.Mock(num_replicas_in_sync=1, extended=mock.Mock(should_checkpoint=False))
    with pytest.raises(UserError, match=r"holds a run with other settings:\n.*learning_rate"):
        task = mock.MagicMock(data=mock.MagicMock(bytes=0, difference=lambda model_dir: []))
        run_training(params, task, strategy, str(tmp_path))


@pytest.mark.integration
def test_a_second_trainer_leaves_the_first_alone(folder, tmp_path):
    """With the same settings it would remove a checkpoint that is being written, with others mix two runs."""
    seen = []

    def start_another(step):
        if not seen:
            seen.append(step)
            files = {path: path.read_bytes() for path in tmp_path.iterdir() if path.suffix == ".yaml"}
            for other in (settings(folder), settings(folder, train_steps=6)):
                with pytest.raises(UserError, match=rf"{tmp_path} is in use by process {os.getpid()} on "):
                    pretraining.pretrain(other, str(tmp_path))
            assert {path: path.read_bytes() for path in files} == files

    with after_reports(start_another):
        pretraining.pretrain(settings(folder), str(tmp_path))
    steps = [(line["step"], line["kind"]) for line in read_history(str(tmp_path / "history.jsonl"))]
    assert seen and len(steps) == len(set(steps)) and steps[-1] == (12, "dev")
    assert not (tmp_path / "owner.json").exists()


@pytest.mark.integration
def test_a_run_that_was_taken_over_writes_nothing_more(folder, tmp_path, monkeypatch):
    def take_over(step):
        owner = json.loads((tmp_path / "owner.json").read_text())
        (tmp_path / "owner.json").write_text(json.dumps(owner | {"token": "other", "host": "host-7"}))
        later = time.monotonic() + 1000
        monkeypatch.setattr(time, "monotonic", lambda: later)

    with after_reports(take_over), pytest.raises(UserError, match="taken over by process .* on host-7"):
        pretraining.pretrain(settings(folder, checkpoint_interval=2), str(tmp_path))
    assert not list(tmp_path.glob("ckpt*")) and (tmp_path / "params.yaml").exists()
    assert json.loads((tmp_path / "owner.json").read_text())["host"] == "host-7"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer_config": {"decay": "steep"}}, "decay is 'steep'"),
        ({"checkpoint_interval": 0}, "trainer.checkpoint_interval is 0: expected at least 1 step"),
        ({"validation_interval": 0}, "trainer.validation_interval is 0: expected at least 1 step"),
    ],
)
def test_a_refused_run_leaves_nothing_behind(folder, tmp_path, changes, message):
    (tmp_path / "notes.txt").touch()
    params = settings(folder)
    params.trainer.override(changes)
    with pytest.raises(UserError, match=message):
        pretraining.pretrain(params, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.integration
def test_settings_count_before_the_first_checkpoint(folder, tmp_path, monkeypatch):
    bar = Progress.evaluation_bar
    for number, error, name in (
        (signal.SIGTERM, Interrupted, "SIGTERM"),
        (signal.SIGINT, Cancelled, "Ctrl-C"),
    ):
        end = lambda *arguments: os.kill(os.getpid(), number) or bar(*arguments)  # noqa: B023, E731
        with monkeypatch.context() as patch, pytest.raises(error, match=f"{name} before the first .* again"):
            patch.setattr(Progress, "evaluation_bar", end)
            pretraining.pretrain(settings(folder), str(tmp_path))
        assert not list(tmp_path.glob("ckpt*"))
    params = settings(folder, train_steps=6)
    with pytest.raises(UserError, match="(?s)train_steps: 12 there, 6 now\n.*remove .*params.yaml"):
        pretraining.pretrain(params, str(tmp_path))
    saved = f"^Ctrl-C at step 2. A checkpoint of it is in {tmp_path}: start the same command again, and"
    with pytest.raises(Cancelled, match=saved), after_reports(ends_itself(signal.SIGINT, 2)):
        pretraining.pretrain(settings(folder), str(tmp_path))
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("ckpt-2")


@pytest.mark.integration
def test_a_run_that_failed_at_once_does_not_forbid_other_settings(folder, tmp_path, monkeypatch):
    def too_large(trainer, iterator, length):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[8,8192]")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="does not fit into the memory"):
        patch.setattr(Trainer, "train_step", too_large)
        pretraining.pretrain(settings(folder), str(tmp_path))
    pretraining.pretrain(settings(folder, train_steps=2), str(tmp_path))


def test_data_that_are_many_are_not_read_before_a_run(folder, caplog):
    params = settings(folder)
    task = pretraining.PretrainingTask(params.task)
    (folder / "records" / "spiece.model").write_bytes(b"another")
    try:
        with pytest.raises(UserError, match="put the tokenizer back"):
            check_data(params, task.data)
        params.trainer.check_data_gb = 0.0
        check_data(params, task.data)
        assert "are not compared with their checksums" in caplog.text
        with pytest.raises(tf.errors.NotFoundError), named_damage(task.data, params.trainer.check_data_gb):
            raise tf.errors.NotFoundError(None, None, "a worker that started again")
        assert "raise trainer.check_data_gb" in caplog.text
    finally:
        (folder / "records" / "spiece.model").write_bytes(b"not read here")


def test_model_gardens_factory_makes_our_tasks(folder):
    task = task_factory.get_task(settings(folder).task, logging_dir="runs/one", name="one")
    assert (type(task), task.logging_dir, task.name) == (pretraining.PretrainingTask, "runs/one", "one")


def operations(dataset) -> list[str]:
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    return [
        node.op for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes
    ]


def test_only_tensorflow_reads_the_records(folder):
    """So the hosts of a TPU slice read theirs, where no Python of ours runs."""
    task = pretraining.PretrainingTask(settings(folder).task)
    found = operations(task.build_inputs(task.task_config.train_data))
    assert len(found) > 100 and not [name for name in found if "PyFunc" in name]


def test_a_remote_task_reads_examples_with_tensorflow_only(tmp_path, small_tokenizer):
    params = toy_finetuning.experiment()
    for data, name, count in (("train_data", "train", 20), ("validation_data", "dev", 9)):
        toy_finetuning.make_examples(tmp_path / name, small_tokenizer, count)
        getattr(params.task, data).input_path = str(tmp_path / name)
    task = finetuning.build_task(params, toy_finetuning.ToyTask)
    before = {training: task.data.batching(training) for training in (True, False)}
    task.data.use_tf_reader(params.trainer.train_steps)
    for training, batching in before.items():
        count = params.trainer.train_steps if training else batching.steps
        datasets = batching.dataset(), task.data.batching(training).dataset()
        assert any("PyFunc" in op for op in operations(datasets[0]))
        assert not [op for op in operations(datasets[1]) if "PyFunc" in op]
        indices = [[batch["index"].numpy().tolist() for batch in d.take(count + 1)] for d in datasets]
        assert indices[0][:count] == indices[1] and len(indices[1]) == count

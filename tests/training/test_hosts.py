"""Two processes train as one, and a run outlives the loss of either.

They start four processes, two at a time, each with a TensorFlow of its own: half a minute on an idle machine.
"""

import json
import re
import signal

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.training import toy, toy_finetuning, worker
from tests.helpers.training.alone import cluster_of, run_alone, start_alone
from tests.helpers.training.worker import settings
from tests.test_signals import LINES
from xlnet_tf.errors import Interrupted, UserError
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.progress import read_history
from xlnet_tf.training.runtime import check_tf_config

SECONDS = 300


def start(folder, model_dir, ending=(), task="pretraining"):
    """Starts two workers; `ending`, if given, is what the second one does to itself: (signal, step).

    Returns:
        Their exit statuses and what they said.
    """
    program = ["-m", "tests.helpers.training.worker", folder, model_dir, task]
    processes = [
        start_alone(*program, *(ending if index else ()), TF_CONFIG=config)
        for index, config in enumerate(cluster_of(2))
    ]
    try:
        said = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], said


@pytest.fixture(scope="module")
def killed(folder):
    """Two workers, the second lost after 6 of 12 steps; the first one's last step, and what came of both."""
    result = start(folder, folder / "two", ("SIGKILL", 6))
    summaries = [len(list((folder / "two" / kind).glob("events*"))) for kind in ("train", "validation")]
    return history(folder / "two")[-1]["step"], summaries, *result


@pytest.fixture(scope="module")
def told(folder, killed):
    """The same run, started again, whose second worker gets SIGTERM after 10 steps."""
    result = start(folder, folder / "two", ("SIGTERM", 10))
    return tf.train.latest_checkpoint(str(folder / "two")), *result


def history(model_dir) -> list[dict]:
    return read_history(str(model_dir / "history.jsonl"))


def training_losses(model_dir) -> list[float]:
    return [line["training_loss"] for line in history(model_dir) if line["kind"] == "train"]


@pytest.mark.integration
def test_the_survivor_of_a_lost_host_ends_with_a_message(killed):
    last_step, summaries, statuses, said = killed
    assert statuses == [Interrupted.EXIT_STATUS, -9], said
    assert "another host or its devices cannot be reached" in said[0] and "ckpt-4" in said[0]
    assert "2 replicas on 2 hosts: localhost" in said[0] and "Traceback" not in said[0]
    assert last_step == 6 and summaries == [1, 1]  # the first one's


@pytest.mark.integration
def test_sigterm_on_one_host_saves_on_all(told):
    checkpoint, statuses, said = told
    assert statuses == [Interrupted.EXIT_STATUS] * 2, said
    assert all("SIGTERM at step 10" in text for text in said)
    assert checkpoint.endswith("ckpt-10")


@pytest.mark.integration
def test_two_hosts_compute_what_one_does(folder, told):
    """10 steps on two hosts, lost and restarted between, and the last 2 on one, equal 12 on one."""
    for name in ("one", "two"):
        pretraining.pretrain(settings(folder), str(folder / name))
    one, two = (toy.tensors(folder / name / "ckpt-12") for name in ("one", "two"))
    assert one.keys() == two.keys() and len(one) > 30
    for tensor, value in one.items():
        np.testing.assert_allclose(two[tensor], value, atol=1e-5, rtol=1e-5, err_msg=tensor)
    reports = [history(folder / name) for name in ("one", "two")]
    reports[1] = [line for line in reports[1] if (line["step"], line["kind"]) != (10, "dev")]  # as it went on
    steps = [[(line["step"], line["kind"]) for line in lines] for lines in reports]
    evaluated = [step for step, kind in steps[0] if kind == "dev"]
    assert steps[0] == steps[1] and evaluated == [0, 2, 4, 8, 12]
    for expected, found in zip(*reports):
        for metric in expected.keys() - {"tokens_per_second", "kind"}:
            assert found[metric] == pytest.approx(expected[metric], rel=1e-5, abs=1e-5), metric


@pytest.mark.long
def test_two_hosts_compute_30_accumulated_steps_as_one_does(folder):
    """Each host has 4 rows of each batch, 2 in each micro-batch; segments go both ways and have memory."""
    statuses, said = start(folder, folder / "two_accumulated", task="accumulated")
    assert statuses == [0, 0], said
    params = settings(folder, **worker.ACCUMULATED)
    pretraining.pretrain(params, str(folder / "one_accumulated"))
    one, two = folder / "one_accumulated", folder / "two_accumulated"
    losses = training_losses(one)
    assert len(losses) == 30 and losses[-1] < losses[0]
    np.testing.assert_allclose(training_losses(two), losses, atol=1e-5, rtol=0)
    expected, found = toy.tensors(one / "ckpt-30"), toy.tensors(two / "ckpt-30")
    parts = "parts/.ATTRIBUTES/VARIABLE_VALUE"
    assert (expected.pop(parts), found.pop(parts)) == (2, 4)
    assert found.keys() == expected.keys()
    assert all(value.any() for name, value in expected.items() if "memory" in name)
    for name, value in expected.items():
        largest = np.abs(value).max()  # by the size of each tensor: moments are tiny
        np.testing.assert_allclose(found[name], value, atol=1e-5 * largest, rtol=0, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("batching", ["length", "packed"])
def test_two_hosts_fine_tune_as_one_does(tmp_path, small_tokenizer, batching):
    """Each reads its own examples; of 21 to evaluate on, the hosts count each once."""
    toy_finetuning.make_examples(tmp_path / "records", small_tokenizer, 64)
    toy_finetuning.make_examples(tmp_path / "dev", small_tokenizer, 21, seed=1)
    task = "packed" if batching == "packed" else "finetuning"
    statuses, said = start(tmp_path, tmp_path / "two", task=task)
    assert statuses == [0, 0], said
    expected = worker.finetune(tmp_path, tmp_path / "one", "one_device", batching)
    (found,) = json.loads((tmp_path / "two" / "seeds.json").read_text())
    assert found["last"] == pytest.approx(expected, abs=1e-5)
    losses = [training_losses(tmp_path / name) for name in ("one", "two")]
    np.testing.assert_allclose(*losses, atol=1e-5)


def assert_rehearsal(folder, rounds, *bucket):
    """Hosts die, hang and return, and the run ends with what an undisturbed one has, bit for bit."""
    result = run_alone("-m", "tests.helpers.training.rehearsal", folder, rounds, *bucket)
    assert result.returncode == 0, result.stderr[-2000:] + (folder / "log").read_text()[-3000:]
    assert len(re.findall("^disturbed-", result.stdout, re.MULTILINE)) == rounds, result.stdout
    expected = toy.tensors(folder / "undisturbed/ckpt-24")
    assert len(expected) > 30 and expected["memory/.ATTRIBUTES/content"].any()
    assert len(list((folder / "undisturbed").glob("ckpt-24.data*"))) == 2  # one of each host
    there = folder / "objects/bucket" if bucket else folder
    runs = [path for path in there.glob("disturbed-*") if not path.suffix]
    assert runs
    for run in runs:
        found = toy.tensors(run / "ckpt-24")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{run.name}: {name}")
        assert not list(run.glob("*temp*"))


@pytest.mark.integration
def test_a_slice_with_a_host_that_dies(tmp_path):
    assert_rehearsal(tmp_path, 1)


@pytest.mark.long
def test_a_slice_whose_hosts_die_hang_and_return_20_times(tmp_path):
    assert_rehearsal(tmp_path, 20)


@pytest.mark.long
def test_nothing_is_lost_in_20_rounds_on_a_bucket_that_is_slow_and_fails(tmp_path):
    pytest.importorskip("cryptography", reason="the stand-in needs a certificate")
    assert_rehearsal(tmp_path, 20, "--bucket")


@pytest.mark.integration
def test_sigterm_ends_a_host_that_does_not_train_yet():
    (config,) = cluster_of(1)
    program = """
import signal, time
from xlnet_tf import errors
from xlnet_tf.training import runtime
from xlnet_tf.training.config import RuntimeConfig

def main(_):
    runtime.prepare(RuntimeConfig(distribution_strategy="multi_worker_mirrored"))
    signal.raise_signal(signal.SIGTERM)
    time.sleep(10)

errors.run(main)
"""
    ended = run_alone("-c", program, TF_CONFIG=config)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (75, LINES[signal.SIGTERM][1].rstrip())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "TF_CONFIG is not set"),
        ("{cluster: 1}", "TF_CONFIG is '{cluster: 1}'"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "another index on each host"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}', "2 of 2 workers"),
        ('{"cluster": {"worker": ["a:1", "b"]}, "task": {"type": "worker", "index": 0}}', "HOST:PORT"),
        ('{"cluster": {"worker": ["a:1", "a:1"]}, "task": {"type": "worker", "index": 0}}', "different ones"),
    ],
)
def test_a_wrong_cluster_is_explained(text, message):
    with pytest.raises(UserError, match=message):
        check_tf_config(text)

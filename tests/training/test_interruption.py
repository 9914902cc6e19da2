"""What ends a run: a lost host, lack of memory, a full disk, Ctrl-C."""

import os
import signal
from unittest import mock

import pytest
import tensorflow as tf

from tests.helpers.full_disk import files_of_at_most
from tests.helpers.training.worker import settings
from xlnet_tf.errors import Interrupted, UserError, tf_errors_as_user_errors
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.interruption import SMALLER_STEP, Preemption, lost_hosts, named_lack_of_memory
from xlnet_tf.training.run import run_training
from xlnet_tf.training.trainer import Trainer


def test_errors_of_other_machines_say_how_to_resume(tmp_path):
    text = "Graph execution error:\n\nDetected at node X\n  File a\n\nSocket closed\nmore"
    lost = tf.errors.UnavailableError(None, None, text)
    tpu = mock.Mock(spec=tf.distribute.TPUStrategy)
    expected = pytest.raises(Interrupted, match=r"\(Socket closed\).*from its beginning")
    with expected, lost_hosts(tpu, str(tmp_path)):
        raise lost
    here = tf.distribute.OneDeviceStrategy("CPU:0")
    with pytest.raises(tf.errors.UnavailableError), lost_hosts(here, str(tmp_path)):
        raise lost
    text = "9 root error(s) found.\n  (0) INTERNAL: {{function_node step}} Compilation failure: RET_CHECK"
    with pytest.raises(tf.errors.InternalError), lost_hosts(tpu, str(tmp_path)):
        raise tf.errors.InternalError(None, None, text)


def test_a_host_that_is_lost_while_the_model_is_built_is_an_interruption(folder, tmp_path, monkeypatch):
    def lose():
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted by: Socket closed")

    monkeypatch.setattr("xlnet_tf.training.interruption.has_peers", lambda strategy: True)
    task = pretraining.PretrainingTask(settings(folder).task)
    monkeypatch.setattr(task, "build_model", lose)
    with pytest.raises(Interrupted, match="another host or its devices cannot be reached .*Socket closed"):
        run_training(settings(folder), task, tf.distribute.get_strategy(), str(tmp_path / "run"))


@pytest.mark.parametrize(
    "text",
    [
        "2 root error(s) found.\n  (0) Compilation failure: Ran out of memory in memory space hbm. Used 22G",
        "OOM when allocating tensor with shape[8192,8192]\n\t [[node step]]",
        "Out of memory while trying to allocate 22G for shape [8192,8192]",
        "Attempting to allocate 9.05G for [8192,8192]. That was not possible. There are 2G free.",
        "f32[8192,8192]: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ],
)
def test_a_step_that_is_too_large_comes_with_advice(text):
    message = r"a step of training .*(space hbm. Used 22G|8192]).*--accumulation_steps.*--recompute"
    with pytest.raises(UserError, match=message), named_lack_of_memory("training", SMALLER_STEP):
        raise tf.errors.ResourceExhaustedError(None, None, text)


@pytest.mark.usefixtures("eagerly")
def test_an_evaluation_that_is_too_large_comes_with_its_own_advice(folder, tmp_path, monkeypatch):
    def too_large(trainer, iterator, length):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[8,8192]")

    monkeypatch.setattr(Trainer, "eval_step", too_large)
    with pytest.raises(UserError, match=r"a step of the evaluation .*8192.* Lower --dev_batch_size, 8 now$"):
        pretraining.pretrain(settings(folder), str(tmp_path))


def test_summaries_on_a_full_disk_are_one_error(tmp_path):
    message = rf"^{tmp_path}/events.*; File too large .* of the file system\)\. Check"
    with (
        pytest.raises(UserError, match=message),
        files_of_at_most(10),
        tf_errors_as_user_errors(),
        tf.summary.create_file_writer(str(tmp_path)).as_default(step=0),
    ):
        tf.summary.scalar("loss", 1.0)


@pytest.mark.parametrize(
    "text",
    ["runs/memory_384/train/events.v2; No space left on device", "runs/BLOOM/events.v2; Too many open files"],
)
def test_a_full_disk_is_not_reported_as_lack_of_memory(text):
    with pytest.raises(tf.errors.ResourceExhaustedError), named_lack_of_memory("training", SMALLER_STEP):
        raise tf.errors.ResourceExhaustedError(None, None, text)


@pytest.mark.parametrize("times", [1, 2], ids=["after the last step", "a second time"])
def test_a_ctrl_c_that_no_step_is_waited_for_ends_the_command(times):
    """As of several seeds, of which the next would begin."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Preemption(tf.distribute.get_strategy()):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before

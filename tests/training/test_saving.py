"""Checkpoints that are torn, damaged or do not fit on the disk."""

import concurrent.futures
import logging as python_logging
import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.full_disk import files_of_at_most
from xlnet_tf.checkpoints.of_runs import newest, newest_first
from xlnet_tf.errors import Interrupted, UserError
from xlnet_tf.training import saving
from xlnet_tf.training.saving import Checkpoints, newest_intact

WEIGHT = "weight/.ATTRIBUTES/VARIABLE_VALUE"


class Saved:
    """A small run: a step and a weight that tells it."""

    def __init__(self, folder, size=1000, rows=None, **options):
        self.step = tf.Variable(0, dtype=tf.int64)
        self.hold = tf.Variable(0, dtype=tf.int64)
        self.weight = tf.Variable(tf.zeros([size]))
        self.begun = 0

        def begin():
            self.begun += 1

        self.manager = Checkpoints(
            tf.train.Checkpoint(step=self.step, weight=self.weight, **({"rows": rows} if rows else {})),
            str(folder),
            step=self.step, hold=self.hold, interval=2, max_to_keep=3, initialize=begin, **options,
        )  # fmt: skip

    def begin(self, step):
        self.step.assign(step)
        self.weight.assign(tf.fill(self.weight.shape, float(step)))
        return self.manager.save(checkpoint_number=step)

    def at(self, step):
        path = self.begin(step)
        self.manager.wait()
        return path

    def restored(self) -> int:
        self.manager.restore_or_initialize()
        assert (self.weight.numpy() == float(self.step)).all()
        return int(self.step)


@pytest.fixture
def folder(tmp_path):
    """A run with checkpoints of steps 2, 4, 6 and 10."""
    run = Saved(tmp_path)
    for step in (2, 4, 6, 10):
        assert run.at(step).endswith(f"ckpt-{step}")
    return tmp_path


def kept(folder) -> set[int]:
    return {int(path.stem.removeprefix("ckpt-")) for path in folder.glob("*.index")}


def test_checkpoints_are_found_however_the_folder_is_called(tmp_path):
    folder = tmp_path / "a[b]*"
    folder.mkdir()
    for name in ("ckpt-4", "ckpt-10", "ckpt-best", "other-12"):
        (folder / f"{name}.index").write_bytes(b"")
    for path in (str(folder), f"{folder}/"):
        assert [found.rsplit("/", 1)[1] for found in newest_first(path)] == ["ckpt-10", "ckpt-4"]


def test_the_newest_checkpoint_is_resumed(folder):
    assert kept(folder) == {4, 6, 10}
    assert newest(str(folder)) == newest_intact(str(folder)) == str(folder / "ckpt-10")
    run = Saved(folder)
    assert run.restored() == 10 and not run.begun
    assert run.at(11) is None and run.at(12)  # one is due every two steps


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "harm", [truncate, flip, lambda path: path.unlink(), lambda path: path.write_bytes(b"")]
)
def test_damaged_files_are_passed_over_with_a_warning(folder, caplog, harm):
    harm(folder / "ckpt-10.data-00000-of-00001")
    truncate(folder / "ckpt-6.index")
    (folder / "checkpoint").write_bytes(b"\x00 not what TensorFlow wrote")
    caplog.set_level(python_logging.WARNING, logger="absl")
    run = Saved(folder)
    assert run.restored() == 4
    assert "ckpt-10" in caplog.text and "ckpt-6" in caplog.text and "resumes from" in caplog.text
    assert run.at(6) and Saved(folder).restored() == 6  # written anew


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda note: b"", id="empty"),
        pytest.param(lambda note: note.partition(b"\n")[2], id="no first line"),
        pytest.param(lambda note: bytes([note[0] | 0x80]) + note[1:], id="a flipped bit"),
        pytest.param(None, id="missing"),
    ],
)
def test_a_damaged_note_of_the_checkpoints_is_removed_with_a_warning(folder, caplog, harm):
    note = folder / "checkpoint"
    note.write_bytes(harm(note.read_bytes())) if harm else note.unlink()
    caplog.set_level(python_logging.WARNING, logger="absl")
    run = Saved(folder)
    assert (f"{note} cannot be read" in caplog.text) == bool(harm) and not note.exists()
    assert run.restored() == 10 and run.at(12) and kept(folder) == {6, 10, 12} and note.exists()


@pytest.mark.parametrize("path", [os.path.abspath, os.path.relpath])
def test_a_note_that_lists_the_checkpoints_of_another_run_deletes_none(
    folder, tmp_path_factory, monkeypatch, path
):
    monkeypatch.chdir(folder)
    other = tmp_path_factory.mktemp("other")
    for file in folder.glob("ckpt-4.*"):
        shutil.copy(file, other)
    note = folder / "checkpoint"
    ours = 'all_model_checkpoint_paths: "ckpt-4"'
    assert ours in note.read_text()
    note.write_text(note.read_text().replace(ours, f'all_model_checkpoint_paths: "{path(other)}/ckpt-4"'))
    run = Saved(folder)
    assert run.restored() == 10 and run.at(12)
    assert kept(folder) == {6, 10, 12} and len(list(other.iterdir())) == 2


def test_a_run_with_only_damaged_checkpoints_does_not_restart(folder):
    for path in folder.glob("ckpt-*.data*"):
        truncate(path)
    with pytest.raises(UserError, match=r"no checkpoint of .* can be read: .*ckpt-10 \(.*ckpt-4 \("):
        Saved(folder)


def test_what_a_cut_off_save_left_is_removed(folder):
    leftover = folder / "ckpt-12_temp" / "part-00000-of-00001.data-00000-of-00001"
    leftover.parent.mkdir()
    leftover.write_bytes(b"half")
    (folder / "ckpt-12.data-00000-of-00001.tempstate123").write_bytes(b"half")
    assert Saved(folder).restored() == 10
    assert not [path.name for path in folder.iterdir() if "temp" in path.name]


def test_the_checkpoint_of_another_run_is_refused(folder):
    with pytest.raises(UserError, match=r"ckpt-10 does not fit this run \(.*1000.*900.*another --model_dir"):
        Saved(folder, size=900).restored()
    run = Saved(folder)
    run.manager._checkpoint.more = tf.Variable(1.0)
    with pytest.raises(UserError, match=r"ckpt-10 does not fit this run \(.*not bound to checkpointed"):
        run.restored()


def full_disk(*args):
    raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


def test_a_failed_save_removes_its_own_files_only(folder, monkeypatch):
    def write_half(*args):
        (folder / "ckpt-1_temp").mkdir()
        (folder / "ckpt-1.index").write_bytes(b"half")
        full_disk()

    run = Saved(folder)
    run.restored()
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(saving, "_write_part", write_half)
    run.step.assign(1)
    with pytest.raises(UserError, match="step 1: No space left on device.* the run resumes from .*ckpt-10"):
        run.manager.save(1, check_interval=False)
        run.manager.wait()
    assert sorted(path.name for path in folder.iterdir()) == before  # ckpt-10, for one


def test_a_full_disk_keeps_the_last_good_one_and_a_lost_host_is_not_one(folder, monkeypatch):
    run = Saved(folder, size=200_000)
    run.manager._latest_checkpoint = str(folder / "ckpt-10")
    message = (
        rf"the checkpoint of step 14: File too large. Make room in {folder} .*resumes from .*/ckpt-10, the"
    )
    with pytest.raises(UserError, match=message), files_of_at_most(100_000):
        run.at(14)
    assert not list(folder.glob("ckpt-14*")) and Saved(folder).restored() == 10

    def lost(*args):
        raise tf.errors.UnavailableError(None, None, "Socket closed")

    run = Saved(folder)
    monkeypatch.setattr(saving, "_write_part", lost)
    with pytest.raises(Interrupted, match=r"does not answer \(Socket closed\).* from .*ckpt-10, the last"):
        run.at(14)


def test_checkpoints_are_due_at_multiples_wherever_a_run_was_stopped(folder):
    run = Saved(folder)
    assert run.restored() == 10
    run.step.assign(11)
    assert run.manager.save(checkpoint_number=11, check_interval=False)  # told to end
    assert [step for step in (11, 12, 13, 14) if run.at(step)] == [12, 14]
    run.hold.assign(1)  # steps fail
    assert run.at(20) is None and newest(str(folder)).endswith("ckpt-14")
    assert run.manager.save(checkpoint_number=20, check_interval=False)  # told to end: better than nothing
    run.manager.wait()
    assert newest(str(folder)).endswith("ckpt-20")
    run.hold.assign(0)
    assert run.at(22)
    assert Saved(folder, background=False).begin(24) and newest(str(folder)).endswith("ckpt-24")


def test_other_hosts_restore_and_do_not_write_what_the_first_one_has(folder):
    run = Saved(folder, host=1, hosts=2)
    before = sorted(folder.iterdir())
    assert run.restored() == 10
    assert run.at(12) and sorted(folder.iterdir()) == before


def test_the_bytes_are_those_that_tensorflow_writes(tmp_path):
    run = Saved(tmp_path)
    run.at(2)
    run.manager.checkpoint.write(str(tmp_path / "expected"))
    for kind in ("index", "data-00000-of-00001"):
        assert (tmp_path / f"ckpt-2.{kind}").read_bytes() == (tmp_path / f"expected.{kind}").read_bytes()


@pytest.fixture
def paused(monkeypatch):
    """Lets the thread wait before it writes a part, until the event is set."""
    resumed, write = threading.Event(), saving._write_part

    def write_part(*args):
        resumed.wait()
        write(*args)

    monkeypatch.setattr(saving, "_write_part", write_part)
    yield resumed
    resumed.set()


def test_training_continues_while_a_checkpoint_is_written(folder, paused):
    run = Saved(folder)
    assert run.begin(12).endswith("ckpt-12")
    run.weight.assign_add(tf.ones_like(run.weight))
    assert newest(str(folder)).endswith("ckpt-10") and run.begin(13) is None
    paused.set()
    run.manager.wait()
    np.testing.assert_array_equal(tf.train.load_variable(newest(str(folder)), WEIGHT), [12.0] * 1000)
    assert kept(folder) == {6, 10, 12}


def test_there_is_one_copy_at_a_time(folder, paused):
    run = Saved(folder)
    run.begin(12)
    threading.Timer(0.05, paused.set).start()
    run.begin(14)  # waits
    assert 12 in kept(folder)
    run.manager.wait()
    assert kept(folder) == {10, 12, 14}


def test_a_failure_to_write_ends_the_run_after_the_next_steps(folder, monkeypatch):
    run = Saved(folder)
    monkeypatch.setattr(saving, "_write_part", full_disk)
    run.begin(12)
    concurrent.futures.wait(run.manager._writing)
    with pytest.raises(UserError, match=r"cannot write the checkpoint of step 12: No space left"):
        run.begin(13)  # none is due
    run.manager.wait()  # the error was raised once
    assert kept(folder) == {4, 6, 10}


def test_what_is_begun_is_completed_before_a_run_ends(folder, paused, caplog):
    paused.set()
    with Saved(folder).manager as manager:
        manager._step_counter.assign(12)
        manager.save()
    assert 12 in kept(folder)
    with pytest.raises(KeyError), Saved(folder).manager as manager:
        manager._step_counter.assign(14)
        manager.save()
        raise KeyError  # the run's own
    assert 14 in kept(folder)


def updates():
    """Ways to change a variable, none of which may change a copy that shares its memory."""
    optimizer = tf_keras.optimizers.Adam(0.1)

    def apply(variable):
        optimizer.build([variable])
        optimizer.apply_gradients([(tf.ones_like(variable), variable)])

    add = lambda variable: variable.assign_add(tf.ones_like(variable))  # noqa: E731
    return {
        "assign": lambda variable: variable.assign(variable + 1),
        "add": add,
        "in a graph": tf.function(add),
        "compiled": tf.function(add, jit_compile=True),
        "some rows": lambda variable: variable.scatter_nd_add([[0]], [[7.0, 7.0]]),
        "optimizer": apply,
    }


@pytest.mark.parametrize("update", updates())
def test_a_copy_stays_as_it_is(update):
    variable = tf.Variable(tf.random.stateless_normal([300, 2], [1, 2]))
    for _ in range(2):  # some ways change how a variable is kept
        expected = variable.numpy().copy()
        ((copies),) = saving._copies(tf.train.Checkpoint(v=variable), only_slices=False).values()
        for _ in range(2):
            updates()[update](variable)
        assert copies[0][0].startswith("v/") and (variable.numpy() != expected).any()
        np.testing.assert_array_equal(copies[0][2].numpy(), expected)

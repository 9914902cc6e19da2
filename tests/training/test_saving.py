"""Checkpoints that are torn, damaged or do not fit on the disk."""

import logging as python_logging
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.full_disk import files_of_at_most
from xlnet_tf.checkpoints.of_runs import newest, newest_first
from xlnet_tf.errors import UserError
from xlnet_tf.training.saving import Checkpoints, newest_intact

WEIGHT = "weight/.ATTRIBUTES/VARIABLE_VALUE"


class Saved:
    """A small run: a step and a weight that tells it."""

    def __init__(self, folder, size=1000, **options):
        self.step = tf.Variable(0, dtype=tf.int64)
        self.hold = tf.Variable(0, dtype=tf.int64)
        self.weight = tf.Variable(tf.zeros([size]))
        self.begun = 0

        def begin():
            self.begun += 1

        self.manager = Checkpoints(
            tf.train.Checkpoint(step=self.step, weight=self.weight),
            str(folder),
            step=self.step, hold=self.hold, interval=2, max_to_keep=3, initialize=begin, **options,
        )  # fmt: skip

    def at(self, step):
        self.step.assign(step)
        self.weight.assign(tf.fill(self.weight.shape, float(step)))
        return self.manager.save(checkpoint_number=step)

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
    """The steps whose checkpoints are there."""
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


def test_nothing_saved_is_a_beginning(tmp_path):
    run = Saved(tmp_path)
    assert newest(str(tmp_path)) is None and newest_intact(str(tmp_path / "none")) is None
    run.manager.restore_or_initialize()
    assert run.begun == 1


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
        lambda note: b"",
        lambda note: note.partition(b"\n")[2],
        lambda note: bytes([note[0] | 0x80]) + note[1:],
    ],
    ids=["empty", "no first line", "a flipped bit"],
)
def test_a_damaged_note_of_the_checkpoints_is_removed_with_a_warning(folder, caplog, harm):
    note = folder / "checkpoint"
    note.write_bytes(harm(note.read_bytes()))
    caplog.set_level(python_logging.WARNING, logger="absl")
    run = Saved(folder)
    assert f"{note} cannot be read" in caplog.text and not note.exists()
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


def test_old_checkpoints_are_removed_without_a_note_of_them(folder):
    (folder / "checkpoint").unlink()
    run = Saved(folder)
    assert run.restored() == 10 and run.at(12) and kept(folder) == {6, 10, 12}


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
    with pytest.raises(
        UserError, match=r"ckpt-10 does not fit this run \(.*not bound to checkpointed values"
    ):
        run.restored()


def test_a_failed_save_removes_its_own_files_only(folder, monkeypatch):
    def full(*args, **kwargs):
        (folder / "ckpt-1_temp").mkdir()
        (folder / "ckpt-1.index").write_bytes(b"half")
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    run = Saved(folder)
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    with pytest.raises(
        UserError, match=r"step 1: No space left on device.* the run resumes from .*ckpt-10, the last"
    ):
        run.at(1)
    assert sorted(path.name for path in folder.iterdir()) == before  # ckpt-10, for one


def test_a_full_disk_keeps_the_last_good_one(folder):
    run = Saved(folder, size=200_000)
    run.manager._latest_checkpoint = str(folder / "ckpt-10")
    with pytest.raises(UserError) as found, files_of_at_most(100_000):
        run.at(14)
    assert str(found.value) == (
        f"cannot write the checkpoint of step 14: File too large. Make room in {folder} and start the same "
        f"command again: the run resumes from {folder}/ckpt-10, the last good one"
    )
    assert not list(folder.glob("ckpt-14*"))
    assert Saved(folder).restored() == 10
    np.testing.assert_array_equal(tf.train.load_variable(str(folder / "ckpt-10"), WEIGHT), [10.0] * 1000)


def test_a_host_lost_while_saving_is_not_a_disk_error(folder, monkeypatch):
    def lost(*args, **kwargs):
        raise tf.errors.UnavailableError(None, None, "Socket closed")

    run = Saved(folder)
    monkeypatch.setattr(tf.train.CheckpointManager, "save", lost)
    with pytest.raises(tf.errors.UnavailableError):
        run.at(14)


def test_checkpoints_wait_while_steps_fail(folder):
    run = Saved(folder)
    run.hold.assign(1)
    assert run.at(20) is None and newest(str(folder)).endswith("ckpt-10")
    assert run.manager.save(checkpoint_number=20, check_interval=False)  # told to end: better than nothing
    run.hold.assign(0)
    assert run.at(22)


def test_other_hosts_restore_and_write_elsewhere(folder):
    run = Saved(folder, write=False)
    assert run.restored() == 10
    assert run.at(12) and newest(str(folder)).endswith("ckpt-10")

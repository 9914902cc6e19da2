"""One process at a time writes into a folder, on disks with locks and without."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from etils import epath

from tests.conftest import REPOSITORY
from tests.helpers.full_disk import files_of_at_most
from xlnet_tf import ownership
from xlnet_tf.errors import UserError
from xlnet_tf.ownership import BEAT_SECONDS, FILE, LEASE_SECONDS, Ownership, folder_lease

HOLD = """
import sys, time
from xlnet_tf.ownership import folder_lease
with folder_lease(sys.argv[1], 'training', '--model_dir'):
    print('owned', flush=True)
    time.sleep(600)
"""


class Clock:
    """A clock that stands still but for sleeping; `during` is called in each second that is slept."""

    def __init__(self, during=lambda: None):
        self.now = 0.0
        self.during = during

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.during()


@pytest.fixture
def far(bucket):
    """A folder of a file system without locks."""
    folder = epath.Path(bucket) / "run"
    folder.mkdir(parents=True)
    return folder


def leave_lease(folder, **changes):
    """Leaves the lease of a process of another machine that was killed."""
    owner = Ownership(folder, "training", Clock())
    owner._lease |= {"host": "host-7", "pid": 123, "kernel": "another"} | changes
    owner.renew()
    return owner


def test_a_second_process_is_refused_and_names_the_first(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as first:
        first.stdout.readline()
        found = (
            rf"{tmp_path} is in use by process {first.pid} on \S+ \(training, started 20.* UTC\): .*--out$"
        )
        with pytest.raises(UserError, match=found), folder_lease(tmp_path, "exporting", "--out"):
            pass
        first.send_signal(signal.SIGKILL)
    clock = Clock()
    assert (tmp_path / FILE).exists()
    with folder_lease(tmp_path, "exporting", "--out", clock):
        assert json.loads((tmp_path / FILE).read_text())["pid"] == os.getpid()
    assert clock.now == 0 and not list(tmp_path.iterdir())  # free at once, as the lock ended with its process


def test_an_owner_in_the_same_process_counts(tmp_path, far):
    for folder in (tmp_path, far):
        with folder_lease(folder, "training", "--model_dir", Clock()) as owner:
            clock = Clock(owner.renew)
            with pytest.raises(UserError, match="in use by process"), folder_lease(folder, "", "", clock):
                pass
            owner.check()
        with folder_lease(folder, "training", "--model_dir", Clock()):
            pass


def test_a_lease_that_lives_is_respected_within_a_beat(far, tmp_path):
    """Clocks of machines may differ: what counts is whether the lease changes; locks may not reach them."""
    for folder in (far, tmp_path):
        other, clock = leave_lease(folder), Clock()
        clock.during = lambda clock=clock, other=other: clock.now >= BEAT_SECONDS and other.renew()
        with pytest.raises(UserError, match="process 123 on host-7"), folder_lease(folder, "", "", clock):
            pass
        assert clock.now <= BEAT_SECONDS + 1
        other.check()
        clock = Clock(other.release)
        with folder_lease(folder, "", "", clock):  # its owner has ended, and is not waited for
            assert clock.now < BEAT_SECONDS


def test_the_lease_of_a_killed_process_ends(far, capsys):
    other = leave_lease(far)
    clock = Clock()
    with folder_lease(far, "training", "--model_dir", clock) as owner:
        assert LEASE_SECONDS <= clock.now < LEASE_SECONDS + BEAT_SECONDS
        owner.check()
        # It was not killed but stood still, and now wakes up.
        other._clock.now += LEASE_SECONDS
        with pytest.raises(UserError, match=rf"taken over by process {os.getpid()} on .*writes nothing more"):
            other.check()
        owner.check()
        other.release()
        assert (far / FILE).exists()
    assert "process 123 on host-7 (training" in capsys.readouterr().err
    assert not (far / FILE).exists()


def test_an_owner_removes_what_killed_owners_were_writing(tmp_path, far):
    kept, left = {"examples.jsonl", "notes.tmp1", "my.tmp-0a1b2c3d"}, "tmp123-0a1b2c3d"
    for folder in map(epath.Path, (tmp_path, far)):
        for name in (*kept, f"examples.jsonl.{left}"):
            (folder / name).write_text("x")
        with folder_lease(folder, "training", "--model_dir", Clock()):
            assert {path.name for path in folder.iterdir()} - {FILE} == kept
            (folder / f"{FILE}.{left}").write_text("{")
            (folder / f"other.json.{left}").write_text("{")
        assert {path.name for path in folder.iterdir()} - kept == {f"other.json.{left}"}  # leases at the end
    lease = tmp_path / f"{FILE}.{left}"
    lease.touch()  # of a process that has not noticed yet that the folder has an owner
    with folder_lease(tmp_path, "training", "--model_dir", Clock()):
        assert lease.exists()


def test_a_disk_without_locks_has_leases(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(ownership.fcntl, "flock", no_locks)
    with folder_lease(tmp_path, "", "", Clock()) as owner:
        with pytest.raises(UserError, match="in use"), folder_lease(tmp_path, "", "", Clock(owner.renew)):
            pass
        owner.check()


def test_of_two_that_start_at_once_one_wins(far):
    rival = leave_lease(far)
    rival.release()

    def come_between():
        clock.during = lambda: None
        rival._path.unlink()
        rival.renew()

    clock = Clock(come_between)
    with pytest.raises(UserError, match="host-7"), folder_lease(far, "", "", clock):
        pass
    rival.check()
    assert (far / FILE).exists()


def test_a_damaged_lease_ends_like_any_other(tmp_path):
    (tmp_path / FILE).write_text("{")
    clock = Clock()
    with folder_lease(tmp_path, "", "", clock):
        assert LEASE_SECONDS <= clock.now < LEASE_SECONDS + BEAT_SECONDS


def test_the_lease_is_renewed_while_the_owner_works(far, monkeypatch):
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.001)
    beaten, renew = threading.Event(), Ownership.renew

    def renew_and_count(owner):
        renew(owner)
        if owner._beats > 3:
            beaten.set()

    monkeypatch.setattr(Ownership, "renew", renew_and_count)
    with folder_lease(far, "", "", Clock()):
        assert beaten.wait(60)


def test_a_folder_that_needs_nothing_is_left_as_it_is(tmp_path):
    before = tmp_path.stat().st_mtime_ns
    with folder_lease(tmp_path, "building", "--out", Clock(), at_once=False) as owner:
        owner.beat()
        with pytest.raises(UserError, match="in use by another process"), folder_lease(tmp_path, "", "--out"):
            pass
        assert tmp_path.stat().st_mtime_ns == before
        owner.check()
        found = f"in use by process {os.getpid()}"
        with pytest.raises(UserError, match=found), folder_lease(tmp_path, "", "--out"):
            pass


def export_(folder, tokenizer):
    from xlnet_tf.serving.export import export

    export(None, str(folder))


def examples(folder, tokenizer):
    from xlnet_tf.records.examples import ExampleWriter

    given = {"task": "t", "split": "dev", "seq_len": 8, "columns": [], "settings": {}}
    with ExampleWriter(folder, tokenizer=tokenizer, **given):
        pass


def seeds(folder, tokenizer):
    import tensorflow as tf

    from tests.helpers.training import toy_finetuning
    from xlnet_tf.tasks.seeds import finetune_seeds

    params, strategy = toy_finetuning.experiment(), tf.distribute.get_strategy()
    finetune_seeds(params, toy_finetuning.ToyTask, strategy, str(folder), num_seeds=2)


@pytest.mark.parametrize("write", [export_, examples, seeds])
def test_a_second_writer_is_kept_out(write, tmp_path, small_tokenizer):
    before = b"of the first"
    (tmp_path / "spiece.model").write_bytes(before)
    with folder_lease(tmp_path, "writing", "--out"), pytest.raises(UserError, match=r"in use by .*\(writing"):
        write(tmp_path, small_tokenizer)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_a_full_disk_is_one_error_and_leaves_no_lease(tmp_path):
    error = pytest.raises(UserError, match=rf"^cannot write {tmp_path}/{FILE}: File too large. Make room")
    with error, files_of_at_most(1), folder_lease(tmp_path, "building", "--out"):
        raise AssertionError("the folder was never owned")
    assert not list(tmp_path.iterdir())

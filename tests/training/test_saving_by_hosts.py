"""Checkpoints that several hosts write and read, each its rows."""

import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import original
from tests.helpers.training.alone import run_alone
from tests.training.test_saving import Saved, kept, truncate
from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.errors import Interrupted, UserError
from xlnet_tf.training import saving
from xlnet_tf.training.memory import Rows


class RowsOfHost(Saved):
    """One of several hosts, with two rows of a variable each."""

    def __init__(self, folder, host, hosts, **options):
        self.rows = tf.Variable(tf.zeros([3, 2]))
        memory = types.SimpleNamespace(restored=False)
        rows = tf.__internal__.tracking.Trackable()
        rows._gather_saveables_for_checkpoint = lambda: {
            "content": lambda name: Rows(memory, [self.rows], 1, 2 * host, hosts, name)
        }
        super().__init__(folder, host=host, hosts=hosts, rows=rows, **options)
        self.rows.assign(100.0 * tf.range(3.0)[:, None] + tf.range(2.0) + 2 * host)

    def restored(self):
        self.rows.assign(tf.zeros([3, 2]))
        return super().restored()


def test_each_host_writes_and_reads_its_rows(tmp_path, monkeypatch):
    chief, *others = hosts = [RowsOfHost(tmp_path, host, 4) for host in range(4)]
    chief.begin(2)
    for other in others:
        assert newest(str(tmp_path)) is None  # some rows are missing
        other.at(2)
    chief.manager.wait()
    path = str(tmp_path / "ckpt-2")
    expected = 100.0 * np.arange(3)[:, None] + np.arange(8)
    np.testing.assert_array_equal(tf.train.load_variable(path, "rows/.ATTRIBUTES/content"), expected)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"checkpoint", "ckpt-2.index", *(f"ckpt-2.data-0000{n}-of-00004" for n in range(4))}
    hosts = [RowsOfHost(tmp_path, host, 4) for host in range(4)]
    for host, run in enumerate(hosts):
        assert run.restored() == 2
        np.testing.assert_array_equal(run.rows, expected[:, 2 * host : 2 * host + 2])

    truncate(tmp_path / "ckpt-2.data-00003-of-00004")
    for host, run in enumerate(hosts):
        read = {name: [rows] for name, rows, _ in saving._saved(run.manager.checkpoint) if rows}
        assert (saving._damage(path, read) is not None) == (host == 3)
    chief, *others = hosts
    for number in (4, 6, 8):
        chief.begin(number)
        for other in others:
            other.at(number)
    chief.manager.wait()
    assert kept(tmp_path) == {4, 6, 8} and len(list(tmp_path.glob("ckpt-*"))) == 15


def test_rows_of_other_hosts_are_read_by_fewer_and_by_one(tmp_path):
    """The rows of 4 hosts are read by 2, which have twice as many each, and by one."""
    hosts = [RowsOfHost(tmp_path, host, 4) for host in (1, 2, 3, 0)]
    for run in hosts:
        run.begin(2)
    for run in hosts:
        run.manager.wait()
    expected = 100.0 * np.arange(3)[:, None] + np.arange(8)
    whole = str(tmp_path / "whole")  # as earlier versions wrote it
    name = "rows/.ATTRIBUTES/content"
    original.save(whole, {name: np.float32(expected)})
    for count, path in itertools.product((1, 2, 8), (str(tmp_path / "ckpt-2"), whole)):
        for first in range(0, 8, 8 // count):
            rows = tf.Variable(tf.zeros([3, 8 // count]))
            parts = Rows(types.SimpleNamespace(restored=False), [rows], 1, first, count, name)
            (spec,) = parts.specs
            where = {"tensor_names": [spec.name], "shape_and_slices": [spec.slice_spec]}
            parts.restore(tf.raw_ops.RestoreV2(prefix=path, dtypes=[spec.dtype], **where))
            np.testing.assert_array_equal(rows, expected[:, first : first + 8 // count])


def test_rows_that_never_come_are_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "_PART_SECONDS", 0.0)
    chief = RowsOfHost(tmp_path, 0, 2)
    with pytest.raises(Interrupted, match=r"1 of 2 hosts have not written.* begins anew"):
        chief.at(2)
    assert newest(str(tmp_path)) is None and list(tmp_path.glob("*temp*"))
    RowsOfHost(tmp_path, 0, 2)
    assert not list(tmp_path.glob("*temp*"))


def test_a_failure_of_one_host_ends_all(tmp_path, monkeypatch):
    failed = []
    chief, other = (
        RowsOfHost(tmp_path, host, 2, on_any_host=lambda here: here or any(failed)) for host in (0, 1)
    )
    chief.begin(2)
    failed.append(True)
    with pytest.raises(UserError, match="another host cannot write its part"):
        chief.begin(3)
    chief.manager._ended.set()


_REMOTE_HOSTS = """
import sys, types, numpy as np, tensorflow as tf
from xlnet_tf.training import saving
from xlnet_tf.training.memory import Rows

servers = [tf.distribute.Server({"worker": ["localhost:0"]}, start=True) for _ in range(2)]
cluster = tf.train.ClusterSpec({"worker": [server.target.removeprefix("grpc://") for server in servers]})
tf.config.experimental_connect_to_cluster(cluster)
tasks = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]

class Run:
    def __init__(self):
        self.step = tf.Variable(0, dtype=tf.int64)
        self.parts = []
        for task in tasks:
            with tf.device(task):
                self.parts.append(tf.Variable(tf.zeros([2, 3])))
        rows = tf.__internal__.tracking.Trackable()
        memory = types.SimpleNamespace(restored=False)
        content = lambda name: Rows(memory, self.parts, 0, 0, 2, name)
        rows._gather_saveables_for_checkpoint = lambda: {"content": content}
        self.manager = saving.Checkpoints(
            tf.train.Checkpoint(step=self.step, rows=rows), sys.argv[1], step=self.step, hold=tf.Variable(0),
            interval=1, max_to_keep=1, initialize=lambda: None)

run = Run()
for number, part in enumerate(run.parts):
    part.assign(tf.fill([2, 3], number + 1.0))
run.step.assign(1)
written, write = [], saving._write_part
saving._write_part = lambda prefix, host, copies: (written.append(host), write(prefix, host, copies))
run.manager.save()
for part in run.parts:
    part.assign(tf.zeros([2, 3]))
run.manager.wait()
assert set(tasks) < set(written), written
values = tf.train.load_variable(f"{sys.argv[1]}/ckpt-1", "rows/.ATTRIBUTES/content")
np.testing.assert_array_equal(values, [[1.0] * 3] * 2 + [[2.0] * 3] * 2)
other = Run()
other.manager.restore_or_initialize()
for number, part in enumerate(other.parts):
    np.testing.assert_array_equal(part.numpy(), np.full([2, 3], number + 1.0))
print("restored", flush=True)
import os
os._exit(0)  # servers do not end
"""


@pytest.mark.integration
def test_the_hosts_of_one_process_write_and_read_their_rows(tmp_path):
    """As those of a TPU that is reached by name."""
    ended = run_alone("-c", _REMOTE_HOSTS, tmp_path)
    assert ended.stdout == "restored\n", ended.stderr[-3000:]
    assert len(list(tmp_path.glob("ckpt-1.data*"))) == 3

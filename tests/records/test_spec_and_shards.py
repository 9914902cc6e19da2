import errno
import json
import math
import os
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.records import spec as spec_lib
from xlnet_tf.records.shards import ShardWriter, framed_bytes, read_shard
from xlnet_tf.records.spec import RecordSpec, stream_id


def random_columns(spec, count, seed=0):
    rng = np.random.default_rng(seed)
    columns = {}
    for column in spec.columns:
        limits = np.iinfo(column.dtype)
        shape = (count,) if column.length is None else (count, column.length)
        columns[column.name] = rng.integers(limits.min, limits.max, shape, column.dtype, endpoint=True)
    return columns


SMALL = RecordSpec(8, 4, 2, 100)


@pytest.mark.parametrize("vocab_size", [65536, 65537])
@pytest.mark.parametrize("seq_len,num_predict", [(12, 3), (64, 10), (512, 85)])
def test_records_are_tf_examples_and_round_trip(tmp_path, seq_len, num_predict, vocab_size):
    spec = RecordSpec(seq_len, seq_len // 2, num_predict, vocab_size)
    assert spec.dtypes["input_ids"] == ("uint16" if vocab_size == 65536 else "int32")
    columns = random_columns(spec, 5)
    with ShardWriter(tmp_path / "a.tfrecord", spec) as writer:
        writer.write({name: values[:2] for name, values in columns.items()})
        writer.write({name: values[2:] for name, values in columns.items()})
    dataset = tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord"))
    serialized = list(dataset.as_numpy_iterator())
    assert [len(record) for record in serialized] == [spec.record_bytes] * 5
    assert (tmp_path / "a.tfrecord").stat().st_size == writer.num_bytes == 5 * framed_bytes(spec)
    assert files.sha256(tmp_path / "a.tfrecord") == writer.sha256
    example = tf.train.Example.FromString(serialized[3])
    assert example.features.feature["input_ids"].bytes_list.value[0] == columns["input_ids"][3].tobytes()
    parsed = next(iter(dataset.batch(5, drop_remainder=True).map(spec.parse)))
    read = read_shard(tmp_path / "a.tfrecord", spec)
    part = read_shard(tmp_path / "a.tfrecord", spec, first=1, count=3)
    for name, values in columns.items():
        np.testing.assert_array_equal(parsed[name], values)
        np.testing.assert_array_equal(read[name], values)
        np.testing.assert_array_equal(part[name], values[1:4])
        assert parsed[name].dtype == values.dtype and read[name].dtype == values.dtype
        assert parsed[name].shape.as_list() == list(values.shape)


def test_values_that_do_not_fit_are_refused():
    good = {name: np.zeros_like(v, np.int64) for name, v in random_columns(SMALL, 2).items()}
    SMALL.encode(good)
    for wrong, message in (
        ({**good, "input_ids": good["input_ids"] - 1}, "input_ids has values outside of uint16"),
        ({**good, "segment_ids": good["segment_ids"][:, 1:]}, r"has shape \(2, 7\), expected \(2, 8\)"),
        ({name: v for name, v in good.items() if name != "next_sentence"}, "expected .*next_sentence"),
    ):
        with pytest.raises(ValueError, match=message):
            SMALL.encode(wrong)


def test_impossible_sizes_are_refused():
    for name, sizes in {
        "seq_len is 4": (4, 2, 1, 9),
        "reuse_len is 8": (8, 8, 1, 9),
        "num_predict is 9": (8, 4, 9, 9),
        "vocab_size is 0": (8, 4, 1, 0),
        "vocab_size is 16777217": (8, 4, 1, (1 << 24) + 1),
    }.items():
        with pytest.raises(UserError, match=name):
            RecordSpec(*sizes)
    RecordSpec(5, 1, 1, 1)  # the smallest
    RecordSpec(8, 4, 1, 1 << 24)


def test_damage_is_found_with_file_and_record(tmp_path):
    path, size = tmp_path / "a.tfrecord", framed_bytes(SMALL)
    with ShardWriter(path, SMALL) as writer:
        writer.write(random_columns(SMALL, 4))
    with pytest.raises(UserError, match="damaged in record 0"):  # the length of another layout
        read_shard(path, RecordSpec(8, 4, 1, 100), count=1)
    with pytest.raises(UserError, match="expected"):
        RecordSpec(8, 2, 2, 100_000).decode(SMALL.encode(random_columns(SMALL, 1)))
    data = bytearray(path.read_bytes())
    data[2 * size + 50] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"a\.tfrecord is damaged in record 2 \(byte {2 * size}\)"):
        read_shard(path, SMALL)
    assert len(read_shard(path, SMALL, count=2)["stream"]) == 2


def test_a_failed_shard_leaves_nothing(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"old")
    with pytest.raises(RuntimeError), ShardWriter(tmp_path / "a.tfrecord", SMALL) as writer:
        writer.write(random_columns(SMALL, 4))
        raise RuntimeError
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]
    files.write(tmp_path / "a.tfrecord", b"new")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"new"]


def test_a_full_disk_is_reported_and_existing_files_stay(tmp_path, monkeypatch):
    (tmp_path / "a.tfrecord").write_bytes(b"old")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(files.os, "fsync", unittest.mock.Mock(side_effect=full))
    refused = r"cannot write .*a\.tfrecord: No space left on device"
    with pytest.raises(UserError, match=refused), ShardWriter(tmp_path / "a.tfrecord", SMALL) as writer:
        writer.write(random_columns(SMALL, 4))
    with pytest.raises(UserError, match=refused):
        files.write(tmp_path / "a.tfrecord", b"new")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]
    with pytest.raises(UserError, match="cannot write .*No such file"), ShardWriter(tmp_path / "no/a", SMALL):
        pass


def test_a_stream_is_named_by_pass_direction_and_number():
    ids = {stream_id(p, s, n) for p in (0, 1, 32767) for s in (0, 1, 2**24 - 1) for n in (0, 2**20 - 1)}
    assert len(ids) == 18 and min(ids) == 0 and max(ids) == 2**59 - 1
    for direction, word in ((spec_lib.FORWARD, "forward"), (spec_lib.BACKWARD, "backward")):
        name = spec_lib.stream_name(stream_id(2, 7, 5), direction)
        assert name == f"pass 2, {word}, number 5 of slice 7"


def test_numbers_that_json_lacks_are_null(tmp_path):
    values = {"median": -math.inf, "runs": [{"auc": math.nan, "loss": 0.5, "seed": 1}], "pair": (math.inf, 2)}
    files.write_json(tmp_path / "a.json", values)

    def refuse(text):
        raise ValueError(text)

    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert found == {"median": None, "runs": [{"auc": None, "loss": 0.5, "seed": 1}], "pair": [None, 2]}

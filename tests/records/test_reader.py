"""The reader against a plain-Python simulation of rows made of streams."""

import collections
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from tests.helpers.records.synthetic import SPEC, make_set
from xlnet_tf.errors import UserError
from xlnet_tf.records import reader, shards
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.reader import num_eval_steps, pretraining_dataset, records_of_step, shuffled
from xlnet_tf.records.shards import framed_bytes, read_shard
from xlnet_tf.records.spec import RecordSpec

SEGMENTS = [[(9, 7), (5, 0), (0, 3), (0, 0), (6, 6)], [(4, 4), (5, 2), (1, 3), (8, 6), (0, 5)]]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return make_set(tmp_path_factory.mktemp("set"), SEGMENTS, stream_segments=3)


def test_a_process_looks_for_a_sets_files_once(records, monkeypatch):
    """One process makes the readers of all hosts of a slice, and those of each evaluation."""
    path_class, looked = type(shards.epath.Path("/")), collections.Counter()
    stat = path_class.stat
    monkeypatch.setattr(path_class, "stat", lambda path, **kw: looked.update([path.name]) or stat(path, **kw))
    manifest = Manifest.load(str(records.folder))
    looked.clear()
    for host in (0, 1):
        pretraining_dataset(manifest, 4, num_hosts=2, host=host)
    assert looked == collections.Counter(shard.file for shard in manifest.shards)


def streams_of_passes(manifest):
    """Record numbers of every stream, by pass, from the files alone."""
    passes = [[] for _ in range(manifest.num_passes)]
    for shard in manifest.shards:
        columns = read_shard(manifest.path(shard), manifest.spec)
        for stream in np.unique(columns["stream"]):
            mine = columns["stream"] == stream
            order = np.argsort(columns["segment"][mine])
            assert (columns["segment"][mine][order] == np.arange(mine.sum())).all()
            passes[shard.pass_index].append(columns["input_ids"][mine][order, 0].tolist())
    return passes


def simulated_rows(manifest, batch_size, steps, seed):
    """Each row's first `steps` record numbers: streams shuffled by (seed, epoch), dealt to rows in turn."""
    passes = streams_of_passes(manifest)
    rows = [[] for _ in range(batch_size)]
    epoch = 0
    while min(map(len, rows)) < steps:
        streams = passes[epoch % len(passes)]
        n = len(streams)
        order = shuffled(*(tf.constant(value, tf.int64) for value in (range(n), n, seed, epoch)))
        for position, index in enumerate(order.numpy()):
            rows[position % batch_size] += streams[index]
        epoch += 1
    return np.array([row[:steps] for row in rows]).T  # [steps, batch]


def read_steps(manifest, batch_size, steps, **options):
    """Record numbers [steps, rows of the host] and the batches."""
    rows = batch_size // options.get("num_hosts", 1)
    per_step = rows // options.get("rows_per_batch", rows)
    batches = list(pretraining_dataset(manifest, batch_size, **options).take(steps * per_step))
    numbers = np.concatenate([batch["input_word_ids"][:, 0].numpy() for batch in batches])
    return numbers.reshape(-1, rows), batches


@pytest.mark.parametrize("batch_size,num_hosts,rows_per_batch", [(1, 1, 1), (8, 2, 2), (8, 1, 4)])
def test_rows_are_streams_in_order(records, batch_size, num_hosts, rows_per_batch):
    steps = 70 // batch_size + 20  # several epochs, both passes
    expected = simulated_rows(records, batch_size, steps, seed=5)
    options = {"num_hosts": num_hosts, "rows_per_batch": rows_per_batch, "seed": 5}
    hosts = [read_steps(records, batch_size, steps, host=host, **options)[0] for host in range(num_hosts)]
    np.testing.assert_array_equal(np.concatenate(hosts, axis=1), expected)


@pytest.mark.parametrize("batch_size,starts", [(1, [4, 79]), (8, [20])])
def test_start_step_equals_skipping(records, batch_size, starts):
    """Among the starts are the middle of a stream, the start of one, and later epochs of both passes."""
    expected, batches = read_steps(records, batch_size, 90, seed=2)

    for step in starts:
        numbers, late = read_steps(records, batch_size, 10, start_step=step, seed=2)
        np.testing.assert_array_equal(numbers, expected[step : step + 10], err_msg=str(step))
        for one, other in zip(late, batches[step:]):
            for name, values in one.items():
                np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_the_first_step_needs_no_order_of_streams():
    """Which a set of millions of streams takes seconds to draw."""
    found = reader._row_positions(None, range(2, 4), 8, 0, seed=1)
    np.testing.assert_array_equal(found, [[0, 0], [2, 3], [0, 0]])


def test_remote_records_come_in_the_same_order(records, monkeypatch):
    assert reader._is_remote("gs://bucket/records") and not reader._is_remote("/mnt/records")
    cases = [{"num_hosts": 2, "host": 1, "rows_per_batch": 3, "start_step": 5}, {"repeat": False}]
    near = [read_steps(records, 6, 12, **case)[0] for case in cases]
    monkeypatch.setattr(reader, "_is_remote", lambda folder: True)
    for case, expected in zip(cases, near, strict=True):
        np.testing.assert_array_equal(read_steps(records, 6, 12, **case)[0], expected)


def test_remote_rows_are_read_concurrently(records, monkeypatch):
    read, seconds = reader._Streams.read, 1.5  # eight of them are long, even on a busy machine

    def slow(*place):
        return read(*place).apply(testing.sleep(int(seconds * 1e6)))  # for each record

    monkeypatch.setattr(reader, "_is_remote", lambda folder: True)
    monkeypatch.setattr(reader._Streams, "read", slow)
    batches = iter(pretraining_dataset(records, 8))
    began = time.monotonic()
    next(batches)
    assert seconds < time.monotonic() - began < 8 * seconds


@pytest.mark.parametrize("batch_size,num_hosts,rows_per_batch", [(1, 1, 1), (7, 1, 7), (64, 2, 8)])
def test_evaluation_reads_every_record_once(records, batch_size, num_hosts, rows_per_batch):
    steps, rows = num_eval_steps(records, batch_size), batch_size // num_hosts
    numbers = []
    for host in range(num_hosts):
        options = {"num_hosts": num_hosts, "host": host, "rows_per_batch": rows_per_batch, "repeat": False}
        got, batches = read_steps(records, batch_size, 10**6, **options)
        assert len(got) == steps
        empty, labels, start = (
            np.concatenate(values).reshape(-1, rows)
            for values in (
                [(b["target_positions"] == -1).numpy().all(axis=1) for b in batches],
                [b["next_sentence"] for b in batches],
                [b["stream_start"] for b in batches],
            )
        )
        np.testing.assert_array_equal(labels == -1, empty)
        assert start[empty].all() and start[0].all()
        assert (np.diff(empty.astype(int), axis=0) >= 0).all()  # filler comes last
        numbers += got[~empty].tolist()
    late, _ = read_steps(records, batch_size, 10**6, start_step=1, **options)
    np.testing.assert_array_equal(late, got[1:])
    assert sorted(numbers) == list(range(records.records))


def test_features(records):
    batch = pretraining_dataset(records, 4, rows_per_batch=2).element_spec
    t, p = SPEC.seq_len, SPEC.num_predict
    assert {name: (spec.shape.as_list(), spec.dtype) for name, spec in batch.items()} == {
        "input_word_ids": ([2, t], tf.int32),
        "input_type_ids": ([2, t], tf.uint8),
        "permutation_rank": ([2, t], tf.int16),
        "target_positions": ([2, p], tf.int16),
        "direction": ([2], tf.int8),
        "next_sentence": ([2], tf.int8),
        "stream_start": ([2], tf.bool),
        "document_offset": ([2], tf.int32),
    }
    shards = [read_shard(records.path(shard), SPEC) for shard in records.shards]
    columns = {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}
    columns["stream_start"] = columns["segment"] == 0
    theirs = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}
    for row in pretraining_dataset(records, 1).take(40).as_numpy_iterator():
        for name in batch:
            expected = columns[theirs.get(name, name)][row["input_word_ids"][0, 0]]
            np.testing.assert_array_equal(row[name][0], expected, name)


def test_sizes_of_a_set_of_the_papers_and_of_none(tmp_path):
    manifest = make_set(tmp_path / "one", [[(3, 0)]], spec=RecordSpec(512, 256, 85, 32000))
    batch = next(iter(pretraining_dataset(manifest, 1)))
    assert sum(value.numpy().nbytes for value in batch.values()) <= 4096
    assert num_eval_steps(make_set(tmp_path, [[(0, 0)]], spec=RecordSpec(32, 16, 5, 100)), 4) == 0


def test_sizes_that_do_not_divide(records):
    for options, message in (
        ({"num_hosts": 3}, "batch_size is 4, expected a positive multiple of the 3 hosts"),
        ({"num_hosts": 2, "host": 2}, "host is 2, expected 0 to 1"),
        ({"rows_per_batch": 3}, "rows_per_batch is 3, expected a divisor of the host's 4 rows"),
        ({"batch_size": 14}, "pass 0 .* has 13 streams, too few for a batch of 14"),
    ):
        with pytest.raises(UserError, match=message):
            pretraining_dataset(records, **{"batch_size": 4} | options)


def test_missing_and_cut_shards_are_named_before_they_are_read(tmp_path):
    manifest = make_set(tmp_path, [[(9, 9), (9, 9)]])
    path, size = manifest.path(manifest.shards[1]), framed_bytes(SPEC)
    path.write_bytes(path.read_bytes()[: 5 * size])
    with pytest.raises(UserError, match=rf"{path.name} has {5 * size} bytes, expected {18 * size} by"):
        pretraining_dataset(manifest, 2)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{path.name} is missing: run the builder again"):
        pretraining_dataset(manifest, 2)


def test_shuffled_is_a_permutation_and_that_of_a_seed_stays():
    """Runs that resume read on in the order that they began with."""
    numbers = tf.range(1000, dtype=tf.int64)
    order = shuffled(numbers, *(tf.constant(value, tf.int64) for value in (1000, 3, 2))).numpy()
    assert order[:6].tolist() == [277, 842, 260, 59, 476, 522]
    for size in (*range(1, 40), 65536, 65537, 65538, 100_003):
        numbers = tf.range(size, dtype=tf.int64)
        first, *others = orders = [
            shuffled(numbers, *(tf.constant(value, tf.int64) for value in (size, seed, epoch))).numpy()
            for seed, epoch in [(0, 0), (0, 1), (1, 0)]
        ]
        for order in orders:
            np.testing.assert_array_equal(np.sort(order), numbers)
            if size > 1000:  # about one fixed point, and no correlation of neighbours
                assert (order == numbers.numpy()).sum() < 10
                assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.02
        assert size < 1000 or all(np.mean(first == other) < 0.01 for other in others)


def test_the_records_of_a_step_are_found_again(records):
    """So that an error can name what a step had read."""
    numbers, _ = read_steps(records, 4, 41, seed=3)
    for step in (0, 7, 40):
        for (file, record), number in zip(records_of_step(records, 4, step, seed=3), numbers[step]):
            assert read_shard(records.folder / file, SPEC, record, 1)["input_ids"][0, 0] == number

"""Damaged records never reach a weight: reading them fails, or gives what undamaged ones give.

Two things are shown of each mutation. The check of all data, with which a run begins, names the file and,
where there is one, the place. And whoever reads on regardless, because the damage came later, gets the same
batches or an error; only a shard of another set, with records of the same size under the same numbers, is
found by the check alone.
"""

import collections
import dataclasses
import functools
import random
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.records import mutations
from tests.helpers.records.synthetic import example_writer, make_set
from tests.helpers.training import toy, toy_finetuning
from tests.helpers.training.worker import settings
from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.records.batching import Batches
from xlnet_tf.records.example_reader import example_dataset
from xlnet_tf.records.layout import Column
from xlnet_tf.records.reader import pretraining_dataset
from xlnet_tf.records.shards import ShardWriter, framed_bytes, read_shard
from xlnet_tf.records.spec import RecordSpec
from xlnet_tf.tasks import finetuning
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.interruption import named_damage

OF_OTHERS = ("another set", "swapped", "duplicate")  # whole shards, their records sound


class Folder:
    """A set whose files are damaged in place, and mended."""

    def __init__(self, folder, files, layout, others):
        """Takes the names of its shards, and files of other sets to put in their places."""
        self.folder, self.files = folder, files
        self.size = framed_bytes(layout)
        self.good = {name: (folder / name).read_bytes() for name in files}
        self.others = others

    def damage(self, rng: random.Random) -> tuple[str, int | None]:
        """Damages something; returns how, and the record of the first byte that differs, if that is known."""
        name = rng.choice(self.files)
        data, path = self.good[name], self.folder / name
        how = rng.choice([self.change, self.change, self.change, self.records, self.replace, self.whole])
        kind, new = how(rng, name)
        if new is None:
            path.unlink()
            if kind == "folder":
                path.mkdir()
            return kind, None
        path.write_bytes(new)
        if kind == "swapped":
            pair = next(file for file in self.files if file != name and self.good[file] == new)
            (self.folder / pair).write_bytes(data)
        if new == data or kind in OF_OTHERS:
            return ("nothing" if new == data else kind), None
        shorter = min(len(data), len(new))
        differs = np.frombuffer(data[:shorter], np.uint8) != np.frombuffer(new[:shorter], np.uint8)
        first = int(differs.argmax()) if differs.any() else shorter
        return kind, first // self.size

    def change(self, rng, name):
        how = rng.choice(mutations.OF_BYTES)
        return how, mutations.damaged(rng, self.good[name], how)

    def records(self, rng, name):
        """Removes, repeats, inserts or exchanges whole records."""
        data = self.good[name]
        rows = [data[begin : begin + self.size] for begin in range(0, len(data), self.size)]
        row, there = rng.randrange(len(rows)), rng.randrange(len(rows))
        how = rng.choice(("removed", "repeated", "inserted", "exchanged", "cut off"))
        if how == "removed":
            del rows[row]
        elif how == "repeated":
            rows[row] = rows[there]
        elif how == "inserted":
            rows.insert(row, rng.choice((rows[there], self.good[rng.choice(self.files)][: self.size])))
        elif how == "exchanged":
            rows[row], rows[there] = rows[there], rows[row]
        else:
            del rows[row:]
        return f"record {how}", b"".join(rows)

    def replace(self, rng, name):
        """Puts another shard in its place: one of this set, or of another."""
        other = rng.choice([file for file in self.files if file != name])
        swapped = rng.randrange(2) and len(self.good[other]) == len(self.good[name])
        options = [("swapped" if swapped else "duplicate", self.good[other])]
        options += [("another set", self.others["another set"][name])]
        options += [(kind, files[name]) for kind, files in self.others.items() if kind != "another set"]
        return rng.choice(options)

    def whole(self, rng, name):
        return rng.choice((("empty", b""), ("missing", None), ("folder", None)))

    def mend(self):
        for name, data in self.good.items():
            path = self.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)


class Reader:
    """Reads a dataset again and again, through one iterator: to make one takes as long as twenty readings."""

    _MOST = 1000  # elements and errors of a reading; then a new iterator is cheaper

    def __init__(self, dataset: tf.data.Dataset):
        nothing = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), dataset.element_spec)
        end = tf.data.Dataset.from_tensors((True, nothing))
        once = dataset.map(lambda batch: (False, batch)).concatenate(end)
        again_and_again = tf.data.Dataset.range(1 << 62).flat_map(lambda _: once)
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False  # it would read on before the next damage
        options.autotune.enabled = False  # for so little, more threads only cost
        options.threading.private_threadpool_size = 1
        self._again_and_again = again_and_again.with_options(options)
        self._iterator = iter(self._again_and_again)

    def arrays(self) -> list[dict[str, np.ndarray]]:
        """Returns all batches, or raises the first error: then the rest is read, too, and thrown away."""
        batches, error = [], None
        for _ in range(self._MOST):
            try:
                is_end, batch = next(self._iterator)
            except tf.errors.OpError as raised:
                error = error or raised
                continue
            if is_end:
                break
            batches.append({name: value.numpy() for name, value in batch.items()})
        else:
            self._iterator = iter(self._again_and_again)
        if error:
            raise error
        return batches


def same(found, expected) -> bool:
    return len(found) == len(expected) and all(
        np.array_equal(a[name], b[name]) for a, b in zip(found, expected) for name in b
    )


def raised_by(check) -> Exception | None:
    """Returns the error for the user that a check raises."""
    try:
        return check()
    except (UserError, OSError) as error:
        return error


def outcome(read, expected, checked) -> str:
    """Reads as a run does; returns "equal", "other", or the error that became one that names the file.

    Args:
        read: reads all data.
        expected: what it gives when they are sound.
        checked: returns the error that the check of all data raises, None if there is none.
    """

    def check_data():
        if checked():
            raise checked()

    try:
        with named_damage(types.SimpleNamespace(check=check_data, bytes=0), 0):
            return "equal" if same(read(), expected) else "other"
    except (UserError, OSError) as error:
        return type(error.__context__ or error).__name__


def fuzz(count, records: Folder, check, datasets, read_numpy) -> collections.Counter:
    """Damages a set many times.

    Args:
        count: how many times.
        records: the set.
        check: compares it with its checksums.
        datasets: that read it.
        read_numpy: reads it without TensorFlow.

    Returns:
        How often what was found.
    """
    readers = [Reader(dataset) for dataset in datasets]
    expected, expected_numpy = [reader.arrays() for reader in readers], read_numpy()
    seen = collections.Counter()
    names = "|".join(map(re.escape, records.files))
    for number, rng in enumerate(mutations.generators(count)):
        kind, record = records.damage(rng)
        try:
            checked = functools.cache(lambda: raised_by(check))
            which = number % len(readers)
            found = outcome(readers[which].arrays, expected[which], checked)
            numpy = outcome(read_numpy, expected_numpy, checked)
            fault = checked()
        finally:
            records.mend()
        seen[f"read: {found}"] += 1
        assert found != "other" or kind == "another set", kind
        assert numpy != "other" or kind in OF_OTHERS or kind.startswith("record"), kind
        if kind == "nothing":
            assert found == numpy == "equal" and fault is None
            continue
        seen["named by the check"] += 1
        message = str(fault)
        assert re.search(rf"^{records.folder}/({names}) ", message), message
        where = rf"record {record}\b.* \(byte \d+\)|, from byte \d+ on"
        assert record is None or re.search(where, message), (kind, message)
    assert same(readers[0].arrays(), expected[0])
    return seen


@pytest.fixture(scope="module")
def pretraining_set(tmp_path_factory):
    """A set of three shards, two of them of one size, and the same with other texts and in other sizes."""
    folder = tmp_path_factory.mktemp("pretraining")
    counts = [[(5, 4), (5, 4), (3, 6)]]
    specs = {
        "another set": RecordSpec(12, 4, 3, 70_000),
        "other seq_len": RecordSpec(14, 4, 3, 70_000),
        "other num_predict": RecordSpec(12, 4, 2, 70_000),
        "other vocabulary": RecordSpec(12, 4, 3, 300),
    }
    made = {kind: make_set(folder / kind, counts, 9, spec) for kind, spec in specs.items()}
    for path in (folder / "another set").glob("*.tfrecord"):  # other tokens, as another tokenizer gives
        columns = read_shard(path, specs["another set"])
        with ShardWriter(path, specs["another set"]) as writer:
            writer.write(columns | {"input_ids": columns["input_ids"][:, ::-1] + 1})
    others = {
        kind: {shard.file: manifest.path(shard).read_bytes() for shard in manifest.shards}
        for kind, manifest in made.items()
    }
    manifest = make_set(folder / "set", counts, 9, specs["another set"])
    manifest.tokenizer_path.write_bytes(b"a tokenizer")
    tokenizer = manifest.tokenizer | {"sha256": files.sha256(manifest.tokenizer_path)}
    manifest = dataclasses.replace(manifest, tokenizer=tokenizer)
    return manifest, Folder(manifest.folder, [shard.file for shard in manifest.shards], manifest.spec, others)


@mutations.counts(60, 5000)
def test_pretraining_records(pretraining_set, count):
    manifest, records = pretraining_set
    # The second one has each record once at least.
    datasets = [
        pretraining_dataset(manifest, 3, repeat=False),
        pretraining_dataset(manifest, 3, seed=3).take(12),
    ]

    def read():
        return [read_shard(manifest.path(s), manifest.spec, count=s.records) for s in manifest.shards]

    seen = fuzz(count, records, lambda: manifest.check_files(checksums=True), datasets, read)
    print(dict(seen))
    assert seen["read: DataLossError"] and seen["read: InvalidArgumentError"]


def write_examples(folder, tokenizer, count=20, seed=0, seq_len=12, columns=("label",)):
    """Writes a set in shards of six."""
    rng = np.random.default_rng(seed)
    options = {"seq_len": seq_len, "settings": {"labels": ["no", "yes"]}}
    options["columns"] = [Column(name, "int32", None) for name in columns]
    with pytest.MonkeyPatch.context() as patch, example_writer(folder, tokenizer, **options) as writer:
        for name in ("_CHUNK_RECORDS", "_SHARD_RECORDS"):
            patch.setattr(f"xlnet_tf.records.examples.{name}", 6)
        for number in range(count):
            row = {"input_ids": rng.integers(9, 80, seq_len), "segment_ids": np.zeros(seq_len, int)}
            writer.write(row | dict.fromkeys(columns, number % 2), {"id": str(number)})
    return writer.example_set


@pytest.fixture(scope="module")
def example_set(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("examples")
    others = {}
    for kind, options in {
        "another set": {"seed": 1},
        "other seq_len": {"seq_len": 14},
        "other columns": {"columns": ("labels",)},
        "more columns": {"columns": ("label", "more")},
    }.items():
        made = write_examples(folder / kind, small_tokenizer, **options)
        others[kind] = {shard.file: (made.folder / shard.file).read_bytes() for shard in made.shards}
    examples = write_examples(folder / "set", small_tokenizer)
    files = [shard.file for shard in examples.shards]
    return examples, Folder(folder / "set", files, examples.layout, others)


@mutations.counts(120, 5000)
def test_examples(example_set, count):
    examples, records = example_set
    batches = [Batches(examples, 4, repeat=False).cut(), Batches(examples, 4).cut(), Batches(examples, 4)]
    datasets = [example_dataset(order).take(5) for order in batches]
    check = functools.partial(examples.check_files, checksums=True)
    seen = fuzz(count, records, check, datasets, lambda: [examples.arrays()])
    print(dict(seen))
    assert seen["read: InvalidArgumentError"]  # a UserError, as TensorFlow passes it on


@pytest.mark.parametrize("how", [mutations.flip, lambda rng, data: data[: len(data) // 2]])
def test_no_run_begins_on_damaged_data(tmp_path, small_tokenizer, how):
    toy.make_records(tmp_path / "records")
    toy.make_records(tmp_path / "dev", seed=1)
    params = settings(tmp_path)
    shard = max((tmp_path / "dev").glob("*.tfrecord"))
    shard.write_bytes(how(random.Random(0), shard.read_bytes()))
    with pytest.raises(UserError, match=rf"^{shard} has .* record \d+ .*\(byte \d+\)"):
        pretraining.pretrain(params, str(tmp_path / "model"))

    params = toy_finetuning.experiment()
    params.task.train_data.input_path = str(tmp_path / "train")
    toy_finetuning.make_examples(tmp_path / "train", small_tokenizer, 20)
    shard = tmp_path / "train" / "shard-00000.tfrecord"
    shard.write_bytes(how(random.Random(0), shard.read_bytes()))
    with pytest.raises(UserError, match=rf"^{shard} (is damaged in|ends inside a) record.*byte \d+"):
        finetuning.finetune(
            params, toy_finetuning.ToyTask, tf.distribute.OneDeviceStrategy("CPU:0"), str(tmp_path / "model")
        )
    assert not (tmp_path / "model").exists()

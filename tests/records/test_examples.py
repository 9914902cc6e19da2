"""Sets of fine-tuning examples: what is written is read, in an order that the step determines."""

import json
import shutil

import numpy as np
import pytest

from tests.helpers.full_disk import files_of_at_most
from tests.helpers.records.mutations import set_field
from tests.helpers.records.synthetic import example_writer, make_set
from xlnet_tf import ownership
from xlnet_tf.errors import UserError
from xlnet_tf.records import examples as examples_lib
from xlnet_tf.records.batching import FILLER, Batches
from xlnet_tf.records.example_reader import example_dataset
from xlnet_tf.records.example_report import describe, numbered_inputs
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.input_counts import InputCounts
from xlnet_tf.records.layout import Column
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID

T = 8
WRONG_COLUMNS = [
    *("abc", ["label", "int32"], [3, "int32", None], ["größe", "int32", None], ["label", "int9", None]),
    *(["label", "int32", length] for length in ("1", 0, (1 << 20) + 1)),
]


def rows_of(number):
    """Returns an example that can be told from all others."""
    return {
        "input_ids": [PAD_ID] * (number % 4) + [20 + number] * (6 - number % 4) + [SEP_ID, CLS_ID],
        "segment_ids": [4] * (number % 4) + [0] * (7 - number % 4) + [2],
        "label": number - 1,
        "value": number / 7,
    }


@pytest.fixture
def write(tmp_path, small_tokenizer):
    def write(count, folder="set", **options):
        columns = [Column("label", "int32", None), Column("value", "float32", None)]
        options = {"task": "classification", "columns": columns, "settings": {"labels": ["a", "b"]}} | options
        with example_writer(tmp_path / folder, small_tokenizer, **options) as writer:
            for number in range(count):
                writer.write(rows_of(number), {"id": f"für 漢 {number}"})
        return ExampleSet.load(tmp_path / folder)

    return write


def indices(dataset, steps):
    return [batch["index"].numpy().tolist() for batch in dataset.take(steps)]


def test_examples_round_trip(write, monkeypatch):
    monkeypatch.setattr(examples_lib, "_SHARD_RECORDS", 6)
    monkeypatch.setattr(examples_lib, "_CHUNK_RECORDS", 3)
    examples = write(20)
    assert [shard.records for shard in examples.shards] == [6, 6, 6, 2]
    arrays = examples.arrays()
    for number in range(20):
        for name, values in rows_of(number).items():
            np.testing.assert_allclose(arrays[name][number], values, rtol=1e-6)
    numbers = list(range(20))
    assert arrays["index"].tolist() == numbers == [number for number, _ in numbered_inputs(examples)]
    assert examples.column("label").tolist() == list(range(-1, 19))
    assert write(0, "none").column("label").tolist() == []
    assert [line["id"] for line in examples.sidecar()] == [f"für 漢 {number}" for number in numbers]
    assert (examples.folder / "examples.jsonl").read_text().startswith('{"id": "für 漢 0"}\n')
    assert examples.settings == {"labels": ["a", "b"]}


def test_a_shard_in_the_place_of_another_is_found(write, monkeypatch):
    monkeypatch.setattr(examples_lib, "_SHARD_RECORDS", 6)
    monkeypatch.setattr(examples_lib, "_CHUNK_RECORDS", 3)
    examples = write(12)
    first, second = (examples.folder / shard.file for shard in examples.shards)
    first.write_bytes(second.read_bytes())
    with pytest.raises(Exception, match=f"{first}: record 0 .* is example 6, expected 0"):
        list(example_dataset(Batches(examples, 3, repeat=False)))


def test_an_evaluation_reads_each_example_once_and_fills_up(write):
    examples = write(7)
    first, *_, last = batches = list(example_dataset(Batches(examples, 3, repeat=False)))
    read = [batch["index"].numpy().tolist() for batch in batches]
    assert read == [[0, 1, 2], [3, 4, 5], [6, FILLER, FILLER]]
    assert len(batches) == Batches(examples, 3).steps and not last["input_mask"][1:].numpy().any()
    rows = [*map(rows_of, range(3))]
    for name, expected in {
        "input_word_ids": [row["input_ids"] for row in rows],
        "input_mask": [[i != PAD_ID for i in row["input_ids"]] for row in rows],
        "input_type_ids": [row["segment_ids"] for row in rows],
        "label": [row["label"] for row in rows],
    }.items():
        assert first[name].numpy().tolist() == expected, name


def test_steps_follow_from_the_seed_alone(write):
    """Wherever reading begins, and however many hosts share it; each epoch is another order of the set."""
    examples = write(10)

    def read(steps=10, seed=3, **options):
        return indices(example_dataset(Batches(examples, 4, seed=seed), **options), steps)

    whole = read()
    epochs = np.reshape(whole, (4, 10)).tolist()
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({*map(tuple, epochs)}) == 4 and read(seed=4) != whole
    for start in (1, 3, 7):
        assert read(10 - start, start_step=start) == whole[start:]
    hosts = [read(20, num_hosts=2, host=host, rows_per_batch=1) for host in (0, 1)]
    assert [sum((host[2 * step] + host[2 * step + 1] for host in hosts), []) for step in range(10)] == whole


def test_skipped_inputs_are_counted_with_their_locations(tmp_path, small_tokenizer):
    with example_writer(tmp_path / "set", small_tokenizer) as writer:
        for line in range(30):
            writer.skip("empty text", f"dev.tsv:{line}")
        with pytest.raises(UserError, match=r"^dev.tsv gives no examples: empty text \(30\)$"):
            writer.check_any("dev.tsv")
        writer.count("truncated", 4)
        writer.count("truncated")
    examples = ExampleSet.load(tmp_path / "set")
    assert examples.skipped["empty text"]["count"] == 30 and examples.statistics["truncated"] == 5
    assert examples.skipped["empty text"]["places"][0] == "dev.tsv:0"
    assert "skipped: empty text" in examples.table() and "truncated" in examples.table()
    assert examples.arrays()["index"].shape == (0,) and examples.arrays()["input_ids"].shape == (0, T)
    with pytest.raises(UserError, match="holds no examples"):
        Batches(examples, 2)


def test_an_interrupted_build_leaves_no_set_and_its_rest_is_removed(write, tmp_path, small_tokenizer):
    folder = tmp_path / "set [1]"
    write(5, folder=folder.name)
    (folder / "examples.jsonl.tmp123-0a1b2c3d").write_text("half, of a build that was killed")
    (folder / "mine.tmp").write_text("of somebody else")
    with pytest.raises(KeyboardInterrupt), example_writer(folder, small_tokenizer):
        raise KeyboardInterrupt
    with pytest.raises(FileNotFoundError, match="Build them"):
        ExampleSet.load(folder)
    assert not list(folder.glob("*.tfrecord")) and not list(folder.glob("*.tmp123*"))
    assert (folder / "mine.tmp").exists()


def test_pretraining_records_are_not_replaced(write, tmp_path):
    make_set(tmp_path / "set", [[(5, 3)]])
    with pytest.raises(UserError, match=r"set holds pretraining records \(manifest.json\).*choose another"):
        write(3)
    assert Manifest.load(tmp_path / "set").records == 8


@pytest.mark.parametrize(("text", "file"), [("x" * 2000, "examples.jsonl"), ("", "shard-00000.tfrecord")])
def test_a_full_disk_names_the_file_and_leaves_no_half(tmp_path, small_tokenizer, text, file):
    size = len(small_tokenizer.model_proto)
    row = {"input_ids": [20] * 254 + [SEP_ID, CLS_ID], "segment_ids": [0] * 255 + [2]}
    full = pytest.raises(UserError, match=rf"^cannot write {tmp_path}/{file}: File too large. Make room")
    with full, files_of_at_most(size), example_writer(tmp_path, small_tokenizer, seq_len=256) as writer:
        for _ in range(size // 200):
            writer.write(row, {"id": text})
    assert {path.name for path in tmp_path.iterdir()} <= {"spiece.model", "examples.jsonl"}


def test_a_folder_of_splits_is_pointed_out(write, tmp_path):
    write(2, folder="records/train")
    with pytest.raises(FileNotFoundError, match="dev_matched/.* does not exist.*; sets next to it: train"):
        ExampleSet.load(tmp_path / "records/dev_matched")
    (tmp_path / "records/model").mkdir()
    shutil.copyfile(tmp_path / "records/train/manifest.json", tmp_path / "records/model/manifest.json")
    with pytest.raises(FileNotFoundError, match=r"sets next to it: train\."):
        ExampleSet.load(tmp_path / "records/dev_matched")
    (tmp_path / "my.csv").touch()
    for path, message in (
        ("my.csv", "my.csv is a file; expected .* build TASK`, or give a table as"),
        ("my.csv/train", "my.csv is a file"),
        ("records", "it has sets in train"),
        ("records/train/train", "/train is one itself: give the folder that it is in"),
    ):
        with pytest.raises((UserError, FileNotFoundError), match=message):
            ExampleSet.load(tmp_path / path)
    for folder in (tmp_path, tmp_path / "dev"):  # as finetune --data=RECORDS, which looks for the split train
        folder.mkdir(exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps({"kind": "pretraining"}))
        with pytest.raises(
            UserError, match="has pretraining records.*xlnet-tf build TASK.*pretrain` trains on"
        ):
            ExampleSet.load(folder / "train" if folder == tmp_path else folder)


def test_wrong_fields_are_named(write):
    manifest = write(6).folder / "manifest.json"
    good = manifest.read_text()
    for path, value, message in (
        (["kind"], "pretraining", "has pretraining records, or is a run on them; expected fine-tuning"),
        (["seq_len"], "8", "seq_len is '8', expected a whole number"),
        (["extra"], 1, "unknown extra"),
        (["statistics"], {"truncated": 1}, "manifest.json was changed"),
        (["seq_len"], 4, "seq_len is 4"),
        (["statistics", "truncated"], 0.5, "statistics.truncated is 0.5"),
        (["skipped", "empty text"], {"count": 1, "places": [2]}, r"empty text.*places\[0\] is 2"),
        *((["columns", 3], column, "columns is .*, expected name, type") for column in WRONG_COLUMNS),
        (["columns", 0], ["input_ids", "int32", T], "columns is .* do not fit seq_len"),
        (["shards", 0, "offset"], 0, r"shards\[0\]: fields unknown offset"),
        (["shards", 0, "file"], "../escaped", "'../escaped' is listed twice or is not a plain file name"),
        (["shards", 0], {"file": "a", "records": -1, "bytes": 0, "sha256": ""}, "a is 0, .* -1 records"),
        (["shards", 1], "again", "shard-00000.tfrecord' is listed twice"),
    ):
        values = json.loads(good)
        if value == "again":
            values["shards"] *= 2
        else:
            set_field(*path, value)(values)
        manifest.write_text(json.dumps(values))
        with pytest.raises(UserError, match=message):
            ExampleSet.load(manifest)


def test_a_set_whose_folder_was_taken_over_is_not_finished(write, tmp_path, monkeypatch):
    """By another machine, while this one stood still for longer than a lease is valid."""
    update = InputCounts.add

    def take_over(counts, ids):
        update(counts, ids)
        path = tmp_path / "set" / "owner.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"token": "other", "host": "host-7"}))
        monkeypatch.setattr(ownership, "BEAT_SECONDS", 0)

    monkeypatch.setattr(InputCounts, "add", take_over)
    with pytest.raises(UserError, match="taken over by process .* on host-7"):
        write(2)
    assert not (tmp_path / "set" / "manifest.json").exists()


def test_examples_are_described_by_their_first_text(tmp_path, small_tokenizer):
    sidecars = [
        {"id": "a", "text": "ka tomi"},
        {"parts": [{"id": "b", "text": "ren"}, {"id": "c", "text": "sol"}]},
        {"query_id": 7, "query": "x" * 61},
        {"question": "x" * 60},
        {"id": "e", "parts": [], "text": ""},
    ]
    with example_writer(tmp_path, small_tokenizer) as writer:
        for sidecar in sidecars:
            writer.write({"input_ids": [9] * T, "segment_ids": [0] * T}, sidecar)
    expected = [("a", "ka tomi"), ("b", "ren"), ("7", "x" * 57 + "..."), ("3", "x" * 60), ("e", "")]
    assert describe(writer.example_set, range(5)) == expected
    assert describe(writer.example_set, [1, 3]) == [expected[1], expected[3]]


@pytest.mark.parametrize(("sequences", "seq_len"), [(2**31, T), (4, 1 << 19), (1, (1 << 20) + 1), (1, 4)])
def test_unreadable_sizes_are_refused_before_a_set_is_written(tmp_path, small_tokenizer, sequences, seq_len):
    with pytest.raises(UserError, match="expected .*1[0,]*48,?576"):
        example_writer(tmp_path / "set", small_tokenizer, seq_len=seq_len, sequences=sequences)
    assert not (tmp_path / "set").exists()

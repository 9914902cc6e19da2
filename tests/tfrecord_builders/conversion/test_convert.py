"""Records of the original become a set of ours."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from tests.helpers.records import external_sets
from tests.helpers.records.external_sets import REUSE_LEN, ROWS, SEQ_LEN, columns_of, make_original, options
from tests.helpers.records.synthetic import make_text_set
from tfrecord_builders.conversion import original_format
from tfrecord_builders.conversion.convert import convert
from tfrecord_builders.conversion.direction_check import Sketch, contradiction
from tfrecord_builders.inspection.check import check
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.reader import pretraining_dataset
from xlnet_tf.records.spans import target_flags
from xlnet_tf.text.special_tokens import CLS_ID, EOD_ID, SEP_ID, UNK_ID


@pytest.mark.parametrize(
    "layout",
    [{}, {"bidirectional": False, "num_cores": 1}, {"num_cores": 1, "num_predict": None}],
    ids=["bi", "uni", "any number of targets"],
)
def test_rows_of_the_original_become_streams(tmp_path, small_tokenizer, layout):
    records = make_original(tmp_path, small_tokenizer, **layout)
    manifest, lacking = convert(options(tmp_path))
    assert len(manifest.shards) == ROWS and manifest.records == len(records["input"]) and manifest.compat
    special = np.isin(records["input"], (SEP_ID, CLS_ID))
    expected = records["is_masked"].astype(bool) & ~special
    cores, bidirectional = layout.get("num_cores", 2), layout.get("bidirectional", True)
    for row, columns in enumerate(columns_of(manifest)):
        mine = slice(row, None, ROWS)
        np.testing.assert_array_equal(columns["input_ids"], records["input"][mine])
        np.testing.assert_array_equal(columns["segment_ids"], records["seg_id"][mine])
        np.testing.assert_array_equal(columns["next_sentence"], records["label"][mine, 0])
        np.testing.assert_array_equal(target_flags(columns), expected[mine])
        backward = bidirectional and row % (ROWS // cores) >= ROWS // cores // 2
        assert (columns["direction"] == (-1 if backward else 1)).all()
        np.testing.assert_array_equal(columns["segment"], np.arange(len(columns["segment"])))
        assert len(np.unique(columns["stream"])) == 1
        text = columns["input_ids"][columns["direction"] == 1][:, :REUSE_LEN]
        counts = {
            "tokens": text.size,
            "unknown": (text == UNK_ID).sum(),
            "word_starts": small_tokenizer.word_starts[text].sum(),
            "documents": (text == EOD_ID).sum(),
        }
        assert manifest.shards[row].statistics["text"].items() >= counts.items()
    report = check(manifest)
    assert report.sound, str(report)
    assert any("document borders" in line for line in lacking)
    batch = next(iter(pretraining_dataset(manifest, ROWS)))
    assert batch["stream_start"].numpy().all()
    found = map(bytes, batch["input_word_ids"].numpy().astype("<i8"))
    assert sorted(found) == sorted(map(bytes, records["input"][:ROWS].astype("<i8")))
    if not layout:
        (source,) = Manifest.load(tmp_path / "ours").corpus
        assert source["file"].startswith("train-0-0.bsz-8.seqlen-32.reuse-16.bi.")
        expected = {"converted_from": "original", "batch_size": 8, "num_cores": 2, "num_predict": 6}
        assert source.items() >= expected.items()


def test_orders_follow_from_the_seed_alone(tmp_path, small_tokenizer):
    make_original(tmp_path, small_tokenizer)
    first, again, other = (
        convert(options(tmp_path, name, seed=seed, perm_size=8))[0]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert [shard.sha256 for shard in first.shards] == [shard.sha256 for shard in again.shards]
    for mine, theirs in zip(columns_of(first), columns_of(other), strict=True):
        for name, values in mine.items():
            assert (values != theirs[name]).any() == (name == "permutation_rank"), name
    assert first.perm_size == 8 and check(first).sound


def test_several_files_and_shorter_streams(tmp_path, small_tokenizer):
    folder = tmp_path / "theirs [1]"
    (folder / "ours").mkdir(parents=True)
    (folder / "ours/train-pass00-slice00900.tfrecord").write_bytes(b"of a conversion that was interrupted")
    records = [make_original(folder, small_tokenizer, seed=task, task=task) for task in (1, 0)]
    manifest, _ = convert(options(folder, stream_segments=4))
    assert [source["file"][:7] for source in manifest.corpus] == ["train-0", "train-1"]
    found = np.concatenate([columns["input_ids"] for columns in columns_of(manifest)[ROWS:]])
    np.testing.assert_array_equal(found, np.concatenate([records[0]["input"][r::ROWS] for r in range(ROWS)]))
    assert max(columns["segment"].max() for columns in columns_of(manifest)) == 3
    assert not (folder / "ours/train-pass00-slice00900.tfrecord").exists() and check(manifest).sound


RECORDS, INFO = "tfrecords/train*", "tfrecords/record_info*"


def of_bytes(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def of_records(change):
    """Returns what changes a file of records: change gets and returns {feature: [N, ...]}."""
    return lambda path: external_sets.write_file(path, change(external_sets.read_file(path)))


def put(name, value):
    def change(records):
        records[name][11, 3] = value
        return records

    return change


def without_b(records):
    records["input"][11, REUSE_LEN:] = [20] * (SEQ_LEN - REUSE_LEN - 3) + [SEP_ID, SEP_ID, CLS_ID]
    records["seg_id"][11] = [0] * (SEQ_LEN - 2) + [1, 2]
    return records


@pytest.mark.parametrize(
    "files,change,message",
    [
        (INFO, pathlib.Path.unlink, "no record_info-.*copy it along"),
        (INFO, lambda path: path.rename(path.with_name("record_info-train.json")),
         "record_info-train.json: the name says how"),
        (INFO, lambda path: shutil.copy(path, str(path).replace("alpha-6", "alpha-5")),
         "alpha is 5 of .* and 6 of"),
        (RECORDS, pathlib.Path.unlink, "tfrecords is missing, which record_info"),
        (RECORDS, of_bytes(lambda d: d[: len(d) // 2 + 9]), "ends inside record 112: it is truncated"),
        (RECORDS, of_bytes(lambda d: d[:5000] + bytes([d[5000] ^ 1]) + d[5001:]), r"damaged in record \d+"),
        (INFO, of_bytes(lambda data: data.replace(b'"num_batch": ', b'"num_batch": 1')),
         r"tfrecords has \d+ records, expected \d+: \d+ steps \(num_batch\) of 8 rows"),
        (INFO, of_bytes(lambda data: re.sub(rb'("num_batch": )\d+', rb"\g<1>1", data)),
         "tfrecords has 224 records, expected 8: 1 steps"),
        *((INFO, of_bytes(lambda data, n=steps: re.sub(rb'("num_batch": )\d+', rb"\g<1>" + n, data)),
           "expected one name in filenames and the steps in num_batch") for steps in (b"0", b"2.0", b"true")),
        ("corpus_info.json", pathlib.Path.unlink, "give --num_cores"),
        (RECORDS, of_records(lambda r: r | {"input": r["input"][:, 1:]}),
         r"record 0 \(step 0, row 0\): feature input is int64_list of 31, expected int64_list of 32"),
        (RECORDS, of_records(lambda r: {n: v for n, v in r.items() if n != "seg_id"}),
         r"record 0 .* has no feature seg_id; it has input, is_masked, label, target"),
        (RECORDS, of_records(put("input", 90)),
         r"record 11 \(step 1, row 3\) has ids from .* to 90, expected 0 to 89: give the tokenizer"),
        (RECORDS, of_records(put("input", SEP_ID)), "record 11 .* is not .16 tokens of reused"),
        (RECORDS, of_records(without_b), "record 11 .* is not .16 tokens of reused"),
        (RECORDS, of_records(put("seg_id", 2)), "record 11 .* has other segment ids than 0 for"),
        (RECORDS, of_records(put("is_masked", 2)), "record 11 .* has flags"),
        (RECORDS, of_records(lambda r: put("is_masked", 1 - r["is_masked"][11, 3])(r)),
         "record 11 .* has not 6 tokens picked"),
    ],
)  # fmt: skip
def test_wrong_records_are_refused(tmp_path, small_tokenizer, files, change, message):
    make_original(tmp_path, small_tokenizer)
    (path,) = tmp_path.glob(files)
    change(path)
    with pytest.raises(UserError, match=message) as raised:
        convert(options(tmp_path))
    assert not (tmp_path / "ours" / "manifest.json").exists()
    # The traceback still refers to the writers: garbage collection has removed nothing.
    assert raised.tb and not list((tmp_path / "ours").glob("*.tmp*"))


def test_wrong_rows_and_options_are_refused(tmp_path, small_tokenizer):
    make_original(tmp_path, small_tokenizer)
    for changes, message in [
        ({"num_cores": 1}, "with 1 cores, rows . and . would be read in the same direction"),
        ({"num_cores": 3}, "has 8 rows for 3 cores.* expected a multiple of 6. Give --num_cores"),
        ({"perm_size": 5}, "perm_size 5 must divide"),
        ({"num_predict": 5}, r"num_predict is 5, but the records were made with 6"),
    ]:
        with pytest.raises(UserError, match=message):
            convert(options(tmp_path, **changes))
    # Rows of another batch size: nearly no record continues the one before it.
    for path in (tmp_path / "tfrecords").iterdir():
        path.rename(path.with_name(path.name.replace("bsz-8", "bsz-4")))
    (info,) = tmp_path.glob(INFO)
    values = json.loads(info.read_text().replace("bsz-8", "bsz-4"))
    info.write_text(json.dumps(values | {"num_batch": 2 * values["num_batch"]}))
    with pytest.raises(UserError, match="is not the text that follows the row's record before it"):
        convert(options(tmp_path, num_cores=2))


@pytest.mark.parametrize("common,wrong,found", [(16, 8, False), (16, 9, True), (8, 8, True), (7, 7, False)])
def test_directions_are_wrong_if_most_of_enough_stretches_say_so(common, wrong, found):
    rows = [Sketch(1), Sketch(1)]
    for row in rows:
        row.keys, row.turned = np.arange(common, dtype=np.uint64), np.zeros(common, bool)
    rows[1].turned[-wrong:] = True
    assert contradiction(rows, np.zeros(2, bool)) == ((0, 1) if found else None)


def test_any_number_of_targets_needs_room(tmp_path, small_tokenizer):
    make_original(tmp_path, small_tokenizer, num_predict=None)
    with pytest.raises(UserError, match="has more than 2 targets: give a larger --num_predict"):
        convert(options(tmp_path, num_predict=2))
    manifest, _ = convert(options(tmp_path, num_predict=20))
    assert manifest.num_predict == 20 and not manifest.has_fixed_targets and check(manifest).sound
    with pytest.raises(UserError, match="holds records already .manifest.json.: choose another --output_dir"):
        convert(options(tmp_path))


def test_rows_that_break_off_become_several_streams(tmp_path, small_tokenizer):
    manifest = make_text_set(
        tmp_path / "set", small_tokenizer, [[(41, 40), (30, 31)]], seq_len=32, num_predict=6
    )
    original_format.write(manifest, tmp_path, 2)
    again, notes = convert(options(tmp_path))
    assert again.records == 2 * 71 and len(again.shards) == 4
    assert any("rows break off at 2 positions" in note for note in notes)
    report = check(again)
    assert report.sound, str(report)
    found = np.concatenate([columns["input_ids"] for columns in columns_of(again)])
    expected = np.concatenate([columns["input_ids"] for columns in columns_of(manifest)])
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(expected, axis=0))

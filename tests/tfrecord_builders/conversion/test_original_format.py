"""Sets of ours become the original's, and come back; the script does both."""

import dataclasses
import shutil

import numpy as np
import pytest
import tf_keras

from run_scripts import convert_records
from tests.helpers.command_flags import parsed
from tests.helpers.records.external_sets import ROWS, columns_of, make_original, options, read_file
from tests.helpers.records.synthetic import make_text_set
from tfrecord_builders.conversion import original_format
from tfrecord_builders.conversion.convert import convert
from tfrecord_builders.inspection.check import check
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


def assert_same_records(found, expected):
    """Asserts that records are the same, but for what the original's reader drops."""
    special = np.isin(expected["input"], (SEP_ID, CLS_ID))
    unused = np.append(special[:, 1:], special[:, :1], axis=1)
    all_dropped = {"input": 0, "seg_id": 0, "label": 0, "is_masked": special, "target": unused}
    for name, dropped in all_dropped.items():
        values = (np.where(dropped, 0, records[name]) for records in (found, expected))
        np.testing.assert_array_equal(*values, err_msg=name)


@pytest.mark.parametrize("layout", [{}, {"bidirectional": False, "num_cores": 1}])
def test_there_and_back(tmp_path, small_tokenizer, layout):
    records = make_original(tmp_path, small_tokenizer, **layout)
    manifest, _ = convert(options(tmp_path))
    written = original_format.write(manifest, tmp_path / "back", ROWS, layout.get("num_cores", 2))
    (path,) = (tmp_path / "back" / "tfrecords").glob("train*")
    assert [path.name] == written.files == [p.name for p in (tmp_path / "tfrecords").glob("train*")]
    assert (written.records, written.dropped) == (manifest.records, 0)
    found = read_file(path)
    assert_same_records(found, records)
    np.testing.assert_array_equal(found["is_masked"].sum(axis=1), 6)
    again, _ = convert(options(tmp_path / "back"))
    assert [shard.sha256 for shard in again.shards] == [shard.sha256 for shard in manifest.shards]


def test_texts_that_end_before_the_last_segment_are_counted(tmp_path, build):
    """With a short reused part, A may reach beyond the A of the next record."""
    ours = build(tmp_path / "ours", reuse_len=8, stream_segments=64)
    original_format.write(ours, tmp_path / "theirs", 64)
    report = check(convert(options(tmp_path / "theirs"))[0])
    assert report.sound, str(report)


@pytest.mark.parametrize("run", ["proc_bi", "proc_uni", "proc_bi_uncased_nofnp"])
def test_records_of_the_original_code(tmp_path, shared, run):
    source = shared(f"golden/data/{run}")
    shutil.copy(shared("golden/data/sp300.model"), tmp_path / "spiece.model")
    manifest, _ = convert(dataclasses.replace(options(tmp_path), input=[str(source)]))
    assert manifest.cleaning["lower"] == ("uncased" in run) and manifest.use_eod == ("uncased" not in run)
    report = check(manifest)
    assert report.sound, str(report)
    original_format.write(manifest, tmp_path / "back", 4)
    (path,) = (tmp_path / "back" / "tfrecords").glob("train*")
    (theirs,) = (source / "tfrecords").glob("train*")
    assert_same_records(read_file(path), read_file(theirs))


def test_our_sets_are_read_by_the_originals_reader(tmp_path, small_tokenizer, monkeypatch):
    name = "official.legacy.xlnet.preprocess_pretrain_data"  # Model Garden's copy of it
    reader = pytest.importorskip(name)
    monkeypatch.setattr(reader, "tf_keras", tf_keras, raising=False)  # which it forgets to import
    sizes = {"seq_len": 32, "reuse_len": 16, "num_predict": 6}
    manifest = make_text_set(tmp_path / "ours", small_tokenizer, [[(41, 40), (30, 31)]], **sizes)
    original_format.write(manifest, tmp_path / "in order", 4, num_tasks=2)
    manifest = dataclasses.replace(manifest, shards=manifest.shards[::-1])
    monkeypatch.setattr(original_format, "_WRITE_RECORDS", 32)
    reported = []
    written = original_format.write(manifest, tmp_path / "original", 4, num_tasks=2, report=reported.append)
    assert len(written.files) == 2
    for name in written.files:  # the manifest's order does not matter
        found, expected = (tmp_path / folder / "tfrecords" / name for folder in ("original", "in order"))
        assert found.read_bytes() == expected.read_bytes()
    assert (written.records, written.dropped) == (40 * 2 + 30 * 2, 2)
    assert (sum(reported), max(reported)) == (written.records, 32)
    assert any("2 records of 142 fill no step" in line for line in original_format.lost(manifest, written))
    settings = {"bsz_per_host": 4, "bi_data": True, "perm_size": 16, "mask_alpha": 6, "mask_beta": 1}
    input_fn, info = reader.get_input_fn(f"{tmp_path}/original/tfrecords", split="train", **sizes, **settings)
    assert info["num_batch"] == written.steps == 35
    ours = {
        ids.astype(np.int32).tobytes(): positions
        for columns in columns_of(manifest)
        for ids, positions in zip(columns["input_ids"], columns["target_positions"], strict=True)
    }
    seen = 0
    for batch in input_fn({"batch_size": 4}).take(written.steps).as_numpy_iterator():
        names = ("input_k", "target", "target_mask", "target_mapping")
        for ids, target, mask, mapping in zip(*(batch[name] for name in names), strict=True):
            positions = ours[ids.astype(np.int32).tobytes()]
            assert mask.all()
            np.testing.assert_array_equal(np.argmax(mapping, axis=1), positions)
            np.testing.assert_array_equal(target, ids[positions])
            seen += 1
    assert seen == written.records


def test_kept_accents_are_named_and_come_back(tmp_path, small_tokenizer):
    """The original's files cannot hold the setting: a line says so, and a flag restores it."""
    make_original(tmp_path, small_tokenizer)
    cleaned, _ = convert(options(tmp_path))
    manifest, _ = convert(options(tmp_path, "kept", keep_accents=True))
    assert not cleaned.cleaning["keep_accents"] and manifest.cleaning["keep_accents"]
    assert [shard.sha256 for shard in manifest.shards] == [shard.sha256 for shard in cleaned.shards]
    written = original_format.write(manifest, tmp_path / "back", ROWS, 2)
    (line,) = set(original_format.lost(manifest, written)) - set(original_format.lost(cleaned, written))
    assert "accents were kept" in line and "--keep_accents" in line
    context = dataclasses.replace(cleaned, functional_tokens="context")
    (line,) = set(original_format.lost(context, written)) - set(original_format.lost(cleaned, written))
    assert "SEP and CLS are context" in line
    shutil.copy(tmp_path / "spiece.model", tmp_path / "back")
    again, _ = convert(options(tmp_path / "back", keep_accents=True))
    assert again.cleaning == manifest.cleaning


def test_sets_that_the_original_cannot_hold(tmp_path, small_tokenizer):
    manifest = make_text_set(tmp_path, small_tokenizer, [[(9, 9)]])
    for changes, rows, cores, message in (
        ({}, 20, 1, "9 records read forward and 9 .*, too few .* 20"),
        ({}, 6, 2, "expected a multiple of 4"),
        ({"objective": "denoising"}, 2, 1, "denoising objective, expected permutation"),
    ):
        with pytest.raises(UserError, match=message):
            original_format.write(dataclasses.replace(manifest, **changes), tmp_path / "a", rows, cores)


def test_a_record_may_lack_as_many_targets_as_it_has_special_tokens(tmp_path, small_tokenizer, monkeypatch):
    sizes = {"seq_len": 32, "reuse_len": 16, "num_predict": 6}
    manifest = make_text_set(tmp_path / "set", small_tokenizer, [[(9, 9)]], **sizes)
    write_file = original_format._write_file

    def write(lacking):
        def write_lacking(rows, path, fixed, report):
            return write_file(rows, path, fixed + lacking, report)

        monkeypatch.setattr(original_format, "_write_file", write_lacking)
        original_format.write(manifest, tmp_path / str(lacking), 4)

    write(3)  # SEP, SEP and CLS are marked instead
    (path,) = (tmp_path / "3" / "tfrecords").glob("train*")
    np.testing.assert_array_equal(read_file(path)["is_masked"].sum(axis=1), 9)
    with pytest.raises(UserError, match="a record has 6 targets, expected 10"):
        write(4)


def test_the_token_after_a_is_one_that_the_next_record_reuses():
    """CLS where A is longer than what that record reuses, and where a stream ends."""
    texts = [[10, 11, 12], [12, 13], [14, 15, 16, 17], [16, 17], [60, 61]]
    ids = np.array([text + [SEP_ID] * (5 - len(text)) for text in texts])
    columns = {"input_ids": ids, "segment": np.array([0, 1, 2, 3, 0])}
    found = original_format._token_after_a(columns, reuse_len=2)
    assert found.tolist() == [13, 14, CLS_ID, CLS_ID, CLS_ID]


def test_the_script(tmp_path, small_tokenizer, capsys):
    make_original(tmp_path, small_tokenizer)
    ours, theirs, model = tmp_path / "ours", tmp_path / "theirs", tmp_path / "spiece.model"

    def run_script(*arguments):
        convert_records.run(parsed(convert_records.define_flags, *arguments))

    run_script(f"--input={tmp_path}", "--from=original", f"--tokenizer={model}", f"--output_dir={ours}")
    run_script(f"--input={ours}", "--to=original", "--batch_size=4", f"--output_dir={theirs}")
    printed = capsys.readouterr().out
    assert "224 of 32 tokens, in 8 streams, forward and backward" in printed
    assert "WARNING: factorization orders are not in the records" in printed
    manifest = Manifest.load(ours)
    ids = read_shard(manifest.path(manifest.shards[0]), manifest.spec)["input_ids"][0, : manifest.reuse_len]
    text = XLNetTokenizer(model).decode(ids)
    assert len(text) > 20 and repr(text[:20])[1:-1] in printed.split("begin ")[1].split("\n")[0]
    assert "224 records in 1 file, 56 steps of 4 rows" in printed
    for arguments, message in [
        ((), "give either --from"),
        (("--from=original", "--to=original"), "give either --from"),
        (("--from=original",), "--from needs --tokenizer"),
        (("--to=original", f"--input={ours},{ours}"), "--to takes one set, found 2"),
    ]:
        with pytest.raises(UserError, match=message):
            run_script(f"--input={ours}", f"--output_dir={tmp_path}/new", *arguments)

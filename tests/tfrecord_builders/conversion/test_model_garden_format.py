"""Records of Model Garden's own builder become a set of ours."""

import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from etils import epath

from tests.conftest import invent_texts
from tests.helpers.records.external_sets import REUSE_LEN, ROWS, SEQ_LEN, columns_of, options
from tfrecord_builders.conversion import int64_records, model_garden_format
from tfrecord_builders.conversion.convert import convert
from tfrecord_builders.inspection.check import check
from xlnet_tf.errors import UserError
from xlnet_tf.records.reader import pretraining_dataset
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.training import train_tokenizer


@pytest.fixture(scope="module")
def model_garden(tmp_path_factory, small_tokenizer):
    """A folder of records by Model Garden's own builder: bi_data, two cores, two passes."""
    builder = pytest.importorskip("official.nlp.data.create_xlnet_pretraining_data")
    from official.nlp.tools import tokenization

    folder = tmp_path_factory.mktemp("model_garden")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    lines = invent_texts(120)
    (folder / "text.txt").write_text("\n".join([*lines[:50], "", *lines[50:]]) + "\n", encoding="utf-8")
    random.seed(0)
    np.random.seed(0)
    builder.create_tfrecords(
        tokenizer=tokenization.FullSentencePieceTokenizer(str(folder / "spiece.model")),
        input_file_or_files=str(folder / "text.txt"),
        use_eod_token=True,
        do_lower_case=False,
        per_host_batch_size=ROWS,
        seq_length=SEQ_LEN,
        reuse_length=REUSE_LEN,
        bi_data=True,
        num_cores_per_host=2,
        save_dir=str(folder),
        num_passes=2,
    )
    return folder


@pytest.fixture
def garden(tmp_path, model_garden):
    """A copy of the folder, and what converts it, by default into `ours`."""
    shutil.copytree(model_garden, tmp_path / "garden [1]")
    folder = tmp_path / "garden [1]"
    return folder, lambda *output, **changes: convert(
        options(folder, *output, source_format="model_garden", **changes)
    )


def test_model_gardens_records(garden):
    folder, convert_all = garden
    manifest, lacking = convert_all()
    assert (manifest.mask["alpha"], manifest.mask["beta"], manifest.split) == (6, 1, "train")
    assert manifest.num_predict == 5 and manifest.functional_tokens == "context"
    assert any("several cores" in line for line in lacking) and any("directions" in line for line in lacking)
    report = check(manifest)
    assert report.sound, str(report)
    assert len(manifest.shards) == 2 * ROWS
    for number, path in enumerate(sorted(folder.glob("*-of-2"))):
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        examples = [tf.train.Example.FromString(record).features.feature for record in records]
        ids = np.array([example["input_word_ids"].int64_list.value for example in examples])
        for row, shard in enumerate(manifest.shards[number * ROWS : (number + 1) * ROWS]):
            columns = read_shard(manifest.path(shard), manifest.spec)
            np.testing.assert_array_equal(columns["input_ids"], ids[row::ROWS])
            assert (columns["direction"] == (-1 if row % 4 >= 2 else 1)).all()
            assert (columns["target_positions"] >= 0).all()
    assert len(list(pretraining_dataset(manifest, 4, permutation="online").take(2))) == 2
    with pytest.raises(UserError, match="num_predict 28 is impossible .* 14 of 16 and 14 of 13 tokens"):
        convert_all("more", num_predict=28)
    with tf.io.TFRecordWriter(str(path)) as writer:  # the last file, without its last record
        for record in records[:-1]:
            writer.write(record)
    manifest, lacking = convert_all("less")
    assert any(f"{path.name}: its last {ROWS - 1} records are not a complete" in line for line in lacking)
    assert [shard.records for shard in manifest.shards[ROWS:]] == [len(records) // ROWS - 1] * ROWS


@pytest.mark.parametrize(
    ("files", "harm", "message"),
    [
        ("*.json", None, "no meta file"),
        ("*-0-of-2", None, "found 1 files .* expected all 2"),
        ("*-0-of-2", lambda path: shutil.copy(path, f"{path}"[:-1] + "3"), "found 3 files .* expected all 3"),
        ("*.json", ('"seq_length": 32', '"seq_length": 48'), "input_word_ids is int64_list of 32, .* of 48"),
        ("*.json", ('"seq_length": 32', '"seq_length": "48"'), "seq_length is '48', expected int"),
        ("spiece.model",
         lambda path: path.write_bytes(train_tokenizer(invent_texts(300, seed=3), 95).model_proto),
         "record 0 .* has boundary_indices elsewhere than the tokenizer"),
        ("*.json", ('"num_cores_per_host": 2', '"num_cores_per_host": 1'),
         "with 1 cores, rows . and . would be read in .*give the build's"),
    ],
)  # fmt: skip
def test_wrong_records_of_model_garden_are_refused(garden, files, harm, message):
    folder, convert_all = garden
    path = next(folder.glob(files))
    if harm is None:
        path.unlink()
    elif callable(harm):
        harm(path)
    else:
        path.write_text(path.read_text().replace(*harm))
    with pytest.raises(UserError, match=message):
        convert_all()
    if "cores" in message:
        manifest, _ = convert_all("as asked", num_cores=2)
        assert {source["num_cores"] for source in manifest.corpus} == {2}


def test_offsets_in_documents_do_not_depend_on_how_many_records_are_read_at_a_time(garden, monkeypatch):
    _, convert_all = garden
    at_once, _ = convert_all("at once")
    parse, sizes = int64_records._parse, []

    def parse_and_count(file, frames, *rest):
        sizes.append(len(frames))
        return parse(file, frames, *rest)

    monkeypatch.setattr(int64_records, "_parse", parse_and_count)
    monkeypatch.setattr(int64_records, "CHUNK_RECORDS", 2 * ROWS)
    step_by_step, _ = convert_all("step by step")
    assert max(sizes) == 2 * ROWS and len(sizes) > 4
    offsets = [[columns["document_offset"] for columns in columns_of(one)] for one in (at_once, step_by_step)]
    for expected, found in zip(*offsets, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert expected.any() and len(expected) > 2


def test_files_come_in_the_order_of_their_numbers(tmp_path):
    meta = {"per_host_batch_size": 8, "num_cores_per_host": 2, "seq_length": 32, "reuse_length": 16}
    meta |= {"do_lower_case": False, "bi_data": True}
    (tmp_path / "a.tfrecord-0-of-12.json").write_text(json.dumps(meta))
    names = [f"a.tfrecord-{number}-of-12" for number in range(12)]
    for name in names:
        (tmp_path / name).touch()
    for paths in ([str(tmp_path)], [str(tmp_path), f"{tmp_path}/a.*.json"]):
        assert [file.path.name for file in model_garden_format.find(paths).files] == names
    with pytest.raises(UserError, match=f"cannot read {tmp_path}: Is a directory"):
        next(int64_records.read_frames(epath.Path(tmp_path)))


def test_borders_outside_a_row_are_no_borders():
    ids, is_border = np.array([[[1, 0, 1]]]), np.array([False, True])
    for borders, agree in (([0, 2, 3, -1], True), ([0, 3, 99, -7], False), ([0, 2, 99, -1], False)):
        assert model_garden_format.borders_agree(np.array([[borders]]), ids, is_border).tolist() == [[agree]]

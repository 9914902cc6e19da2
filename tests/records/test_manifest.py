import json
import shutil

import numpy as np
import pytest

from tests.helpers.records.mutations import set_field
from tests.helpers.records.synthetic import make_set
from xlnet_tf import manifest_checksum
from xlnet_tf.differences import settings_difference
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import read_shard

SHARD = "train-pass00-slice00000.tfrecord"


@pytest.fixture
def folder(tmp_path):
    make_set(tmp_path, [[(5, 3), (2, 2)]])
    return tmp_path


def test_load_gives_what_was_saved(folder):
    manifest = Manifest.load(folder)
    assert manifest == Manifest.load(folder / "manifest.json") and manifest.records == 12
    text = (folder / "manifest.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1) + "\n"
    assert list(json.loads(text))[:2] == ["manifest_sha256", "schema_version"]
    manifest.save()
    assert (folder / "manifest.json").read_text() == text
    shutil.copytree(folder, folder / "copy")
    assert Manifest.load(folder / "copy") == manifest  # wherever it lies
    assert "shards" not in manifest.settings() and "folder" not in manifest.settings()


def test_streams_and_segments_of_a_shard_are_those_of_its_records(tmp_path):
    manifest = make_set(tmp_path, [[(9, 6), (2, 5)], [(4, 8), (1, 1)]])
    for shard in manifest.shards:
        records = read_shard(manifest.path(shard), manifest.spec)
        for name, values in manifest.identity(shard).items():
            np.testing.assert_array_equal(values, records[name], err_msg=name)


def test_a_manifest_of_an_earlier_version_was_built_without_choosing_documents(folder):
    values = json.loads((folder / "manifest.json").read_text())
    del values["documents"], values[manifest_checksum.FIELD]
    (folder / "manifest.json").write_text(json.dumps(values))
    expected = {"borders": "blank_lines", "text_field": "text", "mark_paragraphs": True}
    expected |= {"dedup": False, "dev_fraction": 0.0, "side": ""}
    assert Manifest.load(folder).documents == expected


def test_a_missing_manifest_and_sets_near_by_are_named(folder):
    for place, message in (
        (folder.parent / "none", r"manifest.json does not exist: expected .*Build them with"),
        (folder.parent, f"pretraining records; it has sets in .*{folder.name}.*Build them"),
        (folder / "train", f"pretraining records; {folder} is one itself: give that. Build them"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            Manifest.load(place)


def test_wrong_fields_are_named(folder):
    path = folder / "manifest.json"
    good = path.read_text()
    for change, message in (
        (set_field("schema_version", 2), "schema_version is 2, expected pretraining and 1"),
        (set_field("kind", "examples"), "fine-tuning examples, or is a run on .*; expected pretraining rec"),
        (set_field("extra", 1), "fields unknown extra: build"),
        (lambda values: values.pop("seed"), "fields missing seed: build the records again"),
        (set_field("seq_len", "12"), "seq_len is '12', expected a whole number"),
        (set_field("num_predict", 4), "record_bytes is .*, expected"),
        (set_field("dtypes", "input_ids", "uint16"), "dtypes is"),
        (set_field("num_passes", 0), "num_passes is 0, expected 1 to 32768"),
        (set_field("tokenizer", "special_ids", "<sep>", 5), "tokenizer.special_ids is .*, expected"),
        (set_field("objective", "rtd"), "objective is 'rtd', expected one of permutation"),
        (set_field("statistics", {}), "statistics.tokens_in is None, expected a whole number"),
        (set_field("tokenizer", "file", "../spiece.model"), "tokenizer.file is '../spiece.model'"),
        (set_field("shards", 0, "file", "/etc/passwd"), "'/etc/passwd' is listed twice or is not a plain"),
        (set_field("shards", 0, "forward_segments", 6), f"bytes of {SHARD} is .* for its 9 records"),
        (set_field("shards", 0, "pass_index", 1), f"pass_index of {SHARD} is 1, expected 0 to 0"),
    ):
        values = json.loads(good)
        change(values)
        path.write_text(json.dumps(values))
        with pytest.raises(UserError, match=message):
            Manifest.load(folder)


def test_another_tokenizer_or_vocabulary_is_refused(folder):
    manifest = Manifest.load(folder)
    manifest.check_tokenizer("ab")
    manifest.check_model(70_000)
    with pytest.raises(UserError, match="sha256 is cd, but .* is ab: use .*/spiece.model, or build"):
        manifest.check_tokenizer("cd")
    with pytest.raises(UserError, match="n_token is 69999, but .* is 70000: set n_token to 70000, or build"):
        manifest.check_model(69_999)


def test_difference():
    there = {"a": 1, "mask": {"alpha": 6, "beta": 1}, "only": 2}
    now = {"a": 1, "mask": {"alpha": 7, "beta": 1}, "new": 3}
    assert settings_difference(there, there) == []
    expected = ["mask.alpha: 6 there, 7 now", "new: absent there, 3 now", "only: 2 there, absent now"]
    assert settings_difference(there, now) == expected

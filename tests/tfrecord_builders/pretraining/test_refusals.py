"""What a pretraining build refuses, and what it says when a disk is full or a worker dies."""

import os

import pytest

from tests.helpers.full_disk import files_of_at_most
from tests.helpers.records.builders import contents
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.common import runners
from tfrecord_builders.pretraining import worker
from tfrecord_builders.pretraining.build import build_pretraining_records
from xlnet_tf.errors import UserError


def test_another_build_is_refused_with_the_difference(options, tmp_path):
    first = build_pretraining_records(options(tmp_path, num_passes=1))
    before = contents(tmp_path)
    with pytest.raises(UserError) as error:
        build_pretraining_records(options(tmp_path, num_passes=1, mask_alpha=8, num_predict=4))
    parts = ("mask.alpha: 6 there, 8 now", "num_predict: 5 there, 4 now", "--overwrite")
    assert all(part in str(error.value) for part in parts) and contents(tmp_path) == before
    with pytest.raises(UserError, match=r"documents.dedup: False there, True now"):
        build_pretraining_records(options(tmp_path, num_passes=1, dedup=True))
    second = build_pretraining_records(options(tmp_path, num_passes=1, seed=9, slice_mb=0.05, overwrite=True))
    assert len(second.shards) < len(first.shards)
    assert len(list(tmp_path.iterdir())) == len(second.shards) + 2
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UserError, match="--overwrite .*It holds records of an unknown build"):
        build_pretraining_records(options(tmp_path))
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="holds another build: .*--overwrite.* not JSON"):
        build_pretraining_records(options(tmp_path))


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"num_predict": 30}, "num_predict 30 is impossible .*<= 27"),
        ({"perm_size": 5}, "perm_size 5 must divide"),
        ({"objective": "rtd"}, "objective is 'rtd', expected one of permutation"),
        ({"objective": "autoregressive", "num_predict": 5}, "num_predict is 5, but objective=autoregressive"),
        ({"mask_beta": 7}, "mask_beta is 7, expected 1 to 6"),
        ({"mask_alpha": 64}, "mask_alpha is 64, so that segments of 32 tokens .* expected at most 63"),
        ({"perm_size": 2**31}, "perm_size is 2147483648, expected 1 to 16384"),
        ({"seed": 2**63}, "seed is 9223372036854775808, expected a number between"),
        ({"slice_mb": float("nan")}, "slice_mb is nan, expected a finite number"),
        ({"compat": True, "reuse_len": 8}, "compat is the original's builder: it needs reuse_len 16"),
        ({"split": "a/b"}, "split is 'a/b'"),
        ({"seq_len": 16385}, "seq_len 16385 is too long"),
        ({"sentence_split": "English"}, r"sentence_split is 'English', .*near: en\)"),
        ({"input": ["/no/such/file.txt"]}, "no corpus file matches"),
        ({"input": ["a.txt", ""]}, "the corpus is 'a.txt,', with an empty path"),
        ({"input": ["tfds://wiki/train"]}, "tfds://wiki/train is a data set, expected files: .*--tfds_name"),
        ({"input": ["/no"], "output_dir": "/no/records"}, "/no/records is in /no, the corpus"),
        ({"input": ["/no/*"], "output_dir": "/no/records"}, r"/no/records is in /no/\*, the corpus"),
        ({"tokenizer": "/no/such.model"}, "tokenizer /no/such.model does not exist"),
        ({"seq_len": 8192, "slice_mb": 4}, "too small for one stream.* tokens .*a segment needs 8189"),
    ],
)
def test_bad_options_are_refused(options, tmp_path, changes, message):
    if "seq_len" in changes:
        (tmp_path / "small.txt").write_text(make_text(10))
        changes = {**changes, "input": [str(tmp_path / "small.txt")]}
    with pytest.raises((UserError, FileNotFoundError), match=message):
        build_pretraining_records(options(tmp_path / "out", **changes))
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_line_is_named_by_any_worker(options, tmp_path, workers):
    (tmp_path / "bad.txt").write_bytes(b"Fine.\n" * 100 + b"\xff\n")
    with pytest.raises(UserError, match=r"line 101 \(byte 600\) is not UTF-8"):
        build_pretraining_records(
            options(tmp_path / "out", input=[f"{tmp_path}/bad.txt"], num_workers=workers)
        )
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_full_disk(options, tokenizer_file, tmp_path):
    """A limit on file sizes makes writing fail as a full disk does."""
    message = "cannot write .*slice00000.tfrecord: File too large. Make room"
    limit = tokenizer_file.stat().st_size + 1000
    with pytest.raises(UserError, match=message), files_of_at_most(limit):
        build_pretraining_records(options(tmp_path, slice_mb=1.0))
    assert not [p.name for p in tmp_path.iterdir() if p.suffix == ".tfrecord" or "tmp" in p.name]
    assert not (tmp_path / "manifest.json").exists()


def test_a_folder_that_cannot_be_made(options, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "records"):
        with pytest.raises(UserError, match=f"cannot write {folder}: .*choose another folder"):
            build_pretraining_records(options(folder))


def die(*job):
    os._exit(9)


def test_a_dead_worker(options, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "build_job", die)
    monkeypatch.setattr(runners, "MAX_TRIES", 1)
    with pytest.raises(UserError, match="a worker process died .*finished shards are kept"):
        build_pretraining_records(options(tmp_path, num_workers=2))
    assert not (tmp_path / "manifest.json").exists()

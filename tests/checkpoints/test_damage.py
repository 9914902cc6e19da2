"""Weights that are not those that were written: other bytes, NaN, files of two checkpoints mixed."""

import dataclasses
import errno
import json
import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.helpers.models.checkpoints import CONFIGS, assert_equal, random_checkpoint, save_unlisted
from tests.helpers.records import torch_writer
from xlnet_tf.checkpoints import FORMATS, check, open_checkpoint, save_checkpoint
from xlnet_tf.checkpoints.arrays import Arrays, Entry
from xlnet_tf.checkpoints.safetensors_file import read_safetensors, write_safetensors
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.text.tokenizer import XLNetTokenizer

FILES = {
    "ours": {"weights.safetensors", "xlnet_config.json", "model.json"},
    "original": {
        "xlnet_model.ckpt.index", "xlnet_model.ckpt.data-00000-of-00001", "xlnet_config.json", "model.json",
    },
    "hugging_face": {
        "model.safetensors", "config.json", "tokenizer_config.json", "tokenizer.json", "model.json",
    },
}  # fmt: skip


@pytest.fixture
def source(tmp_path, small_tokenizer):
    save_checkpoint(random_checkpoint(CONFIGS["micro"]), str(tmp_path / "source"), "ours")
    (tmp_path / "source" / "spiece.model").write_bytes(small_tokenizer.model_proto)
    return open_checkpoint(tmp_path / "source")


def flip(path, place=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("format", FORMATS)
def test_a_changed_bit_is_found_in_every_file(tmp_path, source, format):
    folder = tmp_path / format
    save_checkpoint(source, str(folder), format)
    files = {path.name for path in folder.iterdir()} - {checksums.FILE_NAME}
    assert files == FILES[format] | {"spiece.model"}
    listed = (folder / checksums.FILE_NAME).read_text().splitlines()
    assert {line[66:] for line in listed} == files
    subprocess.run(["sha256sum", "--check", "--strict", checksums.FILE_NAME], cwd=folder, check=True)

    def use():
        checkpoint = open_checkpoint(folder)
        assert check(checkpoint).complete
        dict(checkpoint.arrays)
        XLNetTokenizer.from_pretrained(folder)

    use()
    # What people may edit, and what only transformers reads.
    for name in files - {"model.json", "tokenizer_config.json", "tokenizer.json"}:
        before = (folder / name).read_bytes()
        flip(folder / name)
        with pytest.raises(UserError, match=f"{name} has the sha256 .* remove its line|damaged or cut off"):
            use()
        (folder / name).write_bytes(before)
    use()


def test_files_without_a_checksum_are_taken_as_they_are(tmp_path):
    checkpoint = random_checkpoint(CONFIGS["micro"])
    save_unlisted(checkpoint, tmp_path, "ours")
    flip(tmp_path / "weights.safetensors", -4)  # the lowest bit of the last weight
    found = open_checkpoint(tmp_path).arrays
    assert sum(not np.array_equal(found[name], array) for name, array in checkpoint.arrays.items()) == 1
    (tmp_path / checksums.FILE_NAME).write_text(f"{64 * '0'}  other.bin\n")
    dict(open_checkpoint(tmp_path).arrays)


@pytest.mark.parametrize("line", ["{}  ./weights.safetensors", "{} *weights.safetensors\r"])
def test_lists_that_others_have_written(tmp_path, line):
    save_checkpoint(random_checkpoint(CONFIGS["micro"]), str(tmp_path), "ours")
    listed = tmp_path / checksums.FILE_NAME
    right = next(line for line in listed.read_text().splitlines() if line.endswith(".safetensors"))[:64]
    listed.write_text(line.format(right.upper()) + "\n\n")
    dict(open_checkpoint(tmp_path).arrays)
    listed.write_text(line.format(64 * "a"))
    with pytest.raises(UserError, match=f"SHA256SUMS next to it says {64 * 'a'}"):
        dict(open_checkpoint(tmp_path).arrays)


@pytest.mark.parametrize("text", ["x", "", f"{64 * 'a'}  a\n{63 * 'a'}  b\n", f"{64 * 'a'}  \n"])
def test_a_malformed_checksum_list_is_refused(tmp_path, text):
    save_checkpoint(random_checkpoint(CONFIGS["micro"]), str(tmp_path), "ours")
    (tmp_path / checksums.FILE_NAME).write_text(text)
    with pytest.raises(UserError, match=r"SHA256SUMS, line [12]: expected a sha256, two spaces"):
        open_checkpoint(tmp_path)


def test_what_is_half_written_has_no_checksums(tmp_path, monkeypatch):
    """Else the next start would take the first half of new files and the checksums of old ones for damage."""
    checkpoint = random_checkpoint(CONFIGS["micro"])
    save_checkpoint(checkpoint, str(tmp_path), "ours")

    def killed():
        raise KeyboardInterrupt

    entries = dict(checkpoint.arrays.entries)
    entries["lm_bias"] = Entry(entries["lm_bias"].shape, killed)
    other = dataclasses.replace(checkpoint, path="other/place", arrays=Arrays(entries))
    before = (tmp_path / "weights.safetensors").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(other, str(tmp_path), "ours")
    assert {path.name for path in tmp_path.iterdir()} == FILES["ours"]
    assert (tmp_path / "weights.safetensors").read_bytes() == before
    assert_equal(open_checkpoint(tmp_path), checkpoint)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format", [*FORMATS, "torch"])
def test_nan_weights_are_refused(tmp_path, format, bad):
    checkpoint = random_checkpoint(CONFIGS["micro"])
    arrays = dict(checkpoint.arrays)
    arrays["layer_1/attention/query/kernel"][0, 1, 2] = bad
    if format == "torch":
        save_unlisted(checkpoint, tmp_path, "hugging_face")
        theirs = load_file(tmp_path / "model.safetensors")
        (tmp_path / "model.safetensors").unlink()
        theirs["transformer.layer.1.rel_attn.q"][0, 1, 2] = bad
        torch_writer.write(tmp_path / "pytorch_model.bin", theirs, legacy=False)
    else:
        changed = dataclasses.replace(checkpoint, arrays=Arrays.of(arrays))
        save_checkpoint(changed, str(tmp_path), format)
    with pytest.raises(UserError, match=r": 1 of the 1,024 weights of .*layer.1.* are infinite"):
        dict(open_checkpoint(tmp_path).arrays)


def test_shards_of_two_checkpoints_are_not_mixed(tmp_path):
    save_unlisted(random_checkpoint(CONFIGS["micro"]), tmp_path, "hugging_face")
    theirs = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    files = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(sorted(theirs))}
    for file in set(files.values()):
        save_file({name: theirs[name] for name in theirs if files[name] == file}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    assert_equal(open_checkpoint(tmp_path), random_checkpoint(CONFIGS["micro"]))
    moved, other = sorted(files)[:2]
    moved_too = {name: theirs[name] for name in theirs if name == moved or files[name] == files[other]}
    save_file(moved_too, tmp_path / files[other])
    with pytest.raises(UserError, match=rf"part-1.safetensors has other weights than .*\({moved}"):
        open_checkpoint(tmp_path)
    (tmp_path / "part-1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"index.json lists part-1.safetensors, which is not there: "):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("note", [b"\xff\x00 damaged", b"", b'model_checkpoint_path: "gone-7"\n', None])
def test_the_newest_of_a_run_is_found_without_tensorflows_note(tmp_path, note):
    save_checkpoint(random_checkpoint(CONFIGS["micro"]), str(tmp_path), "original")
    checksums.remove(tmp_path)
    for part in ("index", "data-00000-of-00001"):
        data = (tmp_path / f"xlnet_model.ckpt.{part}").read_bytes()
        for step in (9, 10):
            (tmp_path / f"ckpt-{step}.{part}").write_bytes(data)
        (tmp_path / f"xlnet_model.ckpt.{part}").unlink()
    if note is not None:
        (tmp_path / "checkpoint").write_bytes(note)
    assert open_checkpoint(tmp_path).path.endswith("ckpt-10")
    tf.train.Checkpoint(x=tf.Variable(1.0)).save(str(tmp_path / "other/noted"))  # not as runs call them
    assert open_checkpoint(tmp_path / "other").path.endswith("noted-1")


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arrays = Arrays.of({"a": np.ones([3], np.float32)})
    (tmp_path / "weights.safetensors").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="cannot write .*weights.safetensors: No space .*start again"):
        write_safetensors(arrays, str(tmp_path / "weights.safetensors"))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.fixture
def unprivileged():
    """Takes root's rights to all files, if this process has them."""
    root = os.geteuid() == 0
    os.seteuid(65534) if root else None
    yield
    os.seteuid(0) if root else None


def test_weights_that_may_not_be_read_are_not_called_missing(tmp_path, request):
    path = tmp_path / "weights.safetensors"
    write_safetensors(Arrays.of({"a": np.ones([3], np.float32)}), str(path))
    path.chmod(0)
    request.getfixturevalue("unprivileged")
    with pytest.raises(PermissionError):
        read_safetensors(str(path))

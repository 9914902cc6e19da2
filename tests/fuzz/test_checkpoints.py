"""Damaged and hostile checkpoints, and settings next to weights: an error, or a model, and never code."""

import itertools
import json
import pickle
import random
import resource
import zipfile

import numpy as np
import pytest
import tensorflow as tf
import yaml
from safetensors.numpy import load_file, save_file

from tests.helpers.models.checkpoints import CONFIGS, random_checkpoint
from tests.helpers.records import mutations, torch_writer
from xlnet_tf.checkpoints import check, open_checkpoint, save_checkpoint
from xlnet_tf.checkpoints.torch_file import read_torch_file
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.training.saving import Checkpoints

# With checksums of all files, and of the weights alone: what can be read is what was written.
LISTED = ("ours", "original", "hugging_face")
SURE = (*LISTED, "zip")
ROOM = 8 << 30  # bytes that a test may take beyond what it has


@pytest.fixture
def little_room():
    """Lets a huge allocation fail, rather than the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One checkpoint in each format."""
    root = tmp_path_factory.mktemp("checkpoints")
    checkpoint = random_checkpoint(
        CONFIGS["micro"], ("lm_bias", "choice/logits/kernel", "choice/logits/bias")
    )
    for format in ("ours", "original", "hugging_face"):
        save_checkpoint(checkpoint, str(root / format), format)
    theirs = load_file(root / "hugging_face" / "model.safetensors")
    for name in ("legacy", "zip", "split"):
        (root / name).mkdir()
        (root / name / "config.json").write_bytes((root / "hugging_face" / "config.json").read_bytes())
    for name in ("legacy", "zip"):
        torch_writer.write(root / name / "pytorch_model.bin", theirs, name == "legacy")
    index = {}
    for number, part in enumerate(np.array_split(sorted(theirs), 2)):
        save_file({name: theirs[name] for name in part}, root / "split" / f"part-{number}.safetensors")
        index |= dict.fromkeys(part.tolist(), f"part-{number}.safetensors")
    (root / "split" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return root


def damaged(rng: random.Random, data: bytes) -> bytes:
    if data.startswith(b"{"):
        return mutations.of_json(rng, data)
    if data[8:9] == b"{" and rng.randrange(2):  # safetensors
        size = int.from_bytes(data[:8], "little")
        header = json.dumps(mutations.mutated(rng, json.loads(data[8 : 8 + size]))).encode()
        length = rng.choice((len(header), len(header), len(header), 1 << 62, len(header) - 1, 0))
        return length.to_bytes(8, "little") + header + data[8 + size :]
    if rng.randrange(2):  # where the tables are
        part = min(len(data), rng.choice((64, 400, 3000)))
        if rng.randrange(2):
            return mutations.damaged(rng, data[:part]) + data[part:]
        return data[:-part] + mutations.damaged(rng, data[-part:])
    return mutations.damaged(rng, data)


@mutations.counts(250, 10_000)
def test_damaged_checkpoints(folders, little_room, count):
    files = sorted(path for path in folders.rglob("*") if path.is_file())
    expected = {path.name: open_checkpoint(path) for path in folders.iterdir()}
    weights = {name: dict(expected[name].arrays) for name in SURE}

    def use(path):
        checkpoint, format = open_checkpoint(path.parent), path.parent.name
        found = dict(checkpoint.arrays)
        check(checkpoint)
        if format in LISTED:
            assert checkpoint.config == expected[format].config
        if format in LISTED or (format in SURE and path.suffix != ".json"):
            assert found.keys() <= weights[format].keys()
            assert all(np.array_equal(found[name], weights[format][name]) for name in found)
        assert all(np.isfinite(array).all() for array in found.values())

    seen = mutations.try_damaged(count, files, damaged, use)
    assert seen["UserError"] > seen["used"]


@mutations.counts(25, 3000)
def test_damaged_notes_of_a_runs_checkpoints(tmp_path, count):
    """They change neither what is gone on from nor what is kept."""

    def run() -> tuple[tf.Variable, Checkpoints]:
        step = tf.Variable(0, dtype=tf.int64)
        options = {"hold": tf.Variable(0), "interval": 1, "max_to_keep": 2, "initialize": lambda: None}
        return step, Checkpoints(tf.train.Checkpoint(step=step), str(tmp_path), step=step, **options)

    def names() -> set[str]:
        return {path.stem for path in tmp_path.glob("*.index")}

    note = tmp_path / "checkpoint"
    step, checkpoints = run()
    for number in (1, 2):
        step.assign(number)
        checkpoints.save(number)
        checkpoints.wait()
    for number, rng in enumerate(mutations.generators(count), 3):
        note.write_bytes(mutations.damaged(rng, note.read_bytes()))
        step, checkpoints = run()
        assert checkpoints.restore_or_initialize() and int(step) == number - 1
        step.assign(number)
        assert checkpoints.save(number)
        checkpoints.wait()
        assert names() == {f"ckpt-{number - 1}", f"ckpt-{number}"}


def read_pickle(path, pickled: bytes, compression=zipfile.ZIP_STORED):
    """Reads a file of PyTorch's whose table is a pickle."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x/data.pkl", pickled)
        archive.writestr("x/data/100", bytes(8))
    return dict(read_torch_file(str(path)))


def test_a_compressed_archive_is_refused_unread(tmp_path, little_room):
    with pytest.raises(UserError, match="compressed, which PyTorch never does"):
        read_pickle(tmp_path / "model.bin", bytes(200 << 20), zipfile.ZIP_DEFLATED)


def test_what_a_pickle_remembers_takes_no_room_and_is_not_shown(tmp_path, little_room):
    """The number under which it is kept may be any; as many places would be 32 GB."""
    table = pickle.dumps({}, 2).replace(b"q\x00", b"r" + (2**31).to_bytes(4, "little"))
    assert b"r\x00\x00\x00\x80" in table
    assert read_pickle(tmp_path / "model.bin", table) == {}
    # Lists of twice the same list, forty deep: small in the file, endless as text.
    nested = b"]q\x00" + b"".join(b"](h%ch%ceq%c" % (n, n, n + 1) for n in range(40))
    with pytest.raises(UserError, match="damaged") as info:
        read_pickle(tmp_path / "model.bin", b"\x80\x02" + nested + b"Q.")
    assert len(str(info.value)) < 1000


def test_an_index_names_files_in_its_own_folder(tmp_path):
    outside = {"a": "../x.bin"}, {"a": "/tmp/x.safetensors"}
    for weight_map in (None, [], "x.bin", {"a": 1}, {"a": ["x.bin"]}, *outside):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(UserError, match="lists no files of weights next to it"):
            open_checkpoint(tmp_path)


def test_headers_that_lie(tmp_path, little_room):
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    lies = [{"shape": [1 << 40]}, {"shape": [1 << 33, 1 << 33]}, {"data_offsets": [-8, 0]}]
    lies += [{"data_offsets": [8, 16]}, {"dtype": "F8_E5M2", "shape": [8]}, {"dtype": "../F32"}]
    for lie, others in itertools.product(lies, ({}, {"also": good})):  # which overlaps
        header = json.dumps({"word_embedding/embeddings": good | lie, **others}).encode()
        content = len(header).to_bytes(8, "little") + header + bytes(8)
        (tmp_path / "weights.safetensors").write_bytes(content)
        with pytest.raises(UserError, match="weights.safetensors"):
            dict(open_checkpoint(tmp_path).arrays)


HEAD = ("classification_task/logits/kernel", "classification_task/logits/bias")
LABELS = ["a", "b", "c", "d", "e"]


@pytest.fixture(scope="module")
def models(tmp_path_factory, small_tokenizer):
    """A classifier as Hugging Face has it, and as a run of ours leaves it; without checksums."""
    root = tmp_path_factory.mktemp("pretrained")
    checkpoint = random_checkpoint(CONFIGS["micro"], HEAD)
    for format in ("hugging_face", "ours"):
        save_checkpoint(checkpoint, str(root / format), format)
        checksums.remove(root / format)
        (root / format / "spiece.model").write_bytes(small_tokenizer.model_proto)
    config = root / "hugging_face" / "config.json"
    theirs = {
        "id2label": {str(number): label for number, label in enumerate(LABELS)},
        "summary_type": "mean", "clamp_len": 7, "same_length": False, "attn_type": "bi",
    }  # fmt: skip
    config.write_text(json.dumps(json.loads(config.read_text()) | theirs))
    manifest = {"kind": "examples", "task": "classification", "settings": {"labels": LABELS}}
    manifest["cleaning"] = small_tokenizer.cleaning.to_dict()
    (root / "ours" / "manifest.json").write_text(json.dumps(manifest))
    settings = {"attention_type": "bi", "clamp_len": 7, "summary": "mean", "pool_padding": True}
    settings |= {"segment_len": 8, "memory_len": None}
    (root / "ours" / "params.yaml").write_text(yaml.safe_dump({"task": {"model": settings}}))
    return root


@mutations.counts(40, 2000)
def test_settings_files_next_to_weights(models, count):
    files = sorted(path for path in models.rglob("*") if path.suffix in (".json", ".yaml"))
    assert len(files) == 6
    ids = np.full([1, 16], 9, np.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}

    def change(rng, data):
        return (mutations.of_json if data.startswith(b"{") else mutations.of_yaml)(rng, data)

    def use(path):
        XLNetTokenizer.from_pretrained(path.parent)
        model = XLNetClassifier.from_pretrained(path.parent)
        assert np.isfinite(model(inputs).numpy()).all() and len(model.labels) == 5

    seen = mutations.try_damaged(count, files, change, use)
    assert seen["UserError"] and seen["used"]

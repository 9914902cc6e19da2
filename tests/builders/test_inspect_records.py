"""run_scripts/inspect_records.py: what a person sees, and that its check finds what is wrong."""

import dataclasses
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from run_scripts import inspect_records
from tfrecord_builders.pretraining import PretrainingOptions, build_pretraining_records
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import ShardWriter, read_shard

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def build(corpus_file, tokenizer_file):
    def run(folder, **changes):
        options = PretrainingOptions(
            input=[str(corpus_file)],
            tokenizer=str(tokenizer_file),
            output_dir=str(folder),
            seq_len=32,
            stream_segments=6,
            num_workers=1,
            slice_mb=0.03,
        )
        return build_pretraining_records(dataclasses.replace(options, **changes))

    return run


@pytest.fixture(scope="module")
def records(build, tmp_path_factory):
    return build(tmp_path_factory.mktemp("records"))


def test_show(records):
    number = records.shards[0].records + 7  # in the second shard
    text = inspect_records.describe(records, number, target=1)
    columns = read_shard(records.path(records.shards[1]), records.spec, 7, 1)
    targets = columns["target_positions"][0]
    order = targets[np.argsort(columns["permutation_rank"][0][targets])]
    assert f"record {number} of {records.records:,}: {records.shards[1].file}, record 7" in text
    assert "segment 1 of the stream" in text and "read forward" in text
    head, view = text.split("target 1 in the order")
    laid_out = head.split("order of prediction")[0]
    assert len(re.findall(r"\[\S+\]", laid_out)) == 5
    listed = [int(n) for n in re.findall(r"(\d+):\S", head.split("order of prediction")[1].split("\n", 1)[1])]
    assert listed == order.tolist()
    assert f"position {order[1]}," in view and "1 targets predicted before" in view
    assert view.count("<?>") == 2  # the legend's and the target's
    last = inspect_records.describe(records, number, target=4)
    assert "4 targets predicted before" in last and "reused" in last
    backward = inspect_records.describe(records, records.shards[0].forward_segments)
    assert "read backward" in backward
    with pytest.raises(UserError, match="target is 5, expected 0 to 4"):
        inspect_records.describe(records, 0, target=5)
    with pytest.raises(UserError, match=f"record is {records.records}, expected 0 to {records.records - 1}"):
        inspect_records.describe(records, records.records)


def test_show_groups_targets_that_are_independent(build, tmp_path):
    text = inspect_records.describe(build(tmp_path, objective="denoising"), 3, target=2)
    assert re.search(r"\{\d+:\S+( \d+:\S+){4}\}", text)
    assert " 0 targets predicted before" in text


def test_draw(records, tmp_path):
    from matplotlib import image

    inspect_records.draw(records, 3, str(tmp_path / "mask.png"), first=8, count=20)
    picture = image.imread(tmp_path / "mask.png")
    assert picture.shape[0] > 500 and picture.shape[1] > 1000
    colors = {tuple(color) for color in (picture[..., :3].reshape(-1, 3) * 255).round().astype(int).tolist()}
    assert {(0x9E, 0xCA, 0xE1), (0xE6, 0x55, 0x0D), (0x22, 0x22, 0x22)} <= colors
    with pytest.raises(UserError, match="window of 8 positions from 32"):
        inspect_records.draw(records, 3, str(tmp_path / "none.png"), first=32, count=8)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"objective": "denoising"},
        {"objective": "autoregressive"},
        {"compat": True},
        {"functional_tokens": "context"},
        {"bidirectional": False, "reuse_len": 12, "perm_size": 4, "num_passes": 2},
    ],
)
def test_check_finds_sound_sets_sound(build, tmp_path, changes):
    manifest = build(tmp_path, **changes)
    assert inspect_records.check(manifest) == manifest.records


def rewrite(folder, manifest, change):
    """Copies the first shard with changed columns, checksums and all, into a set of its own."""
    shard = manifest.shards[0]
    columns = {k: v.copy() for k, v in read_shard(manifest.path(shard), manifest.spec).items()}
    change(columns)
    with ShardWriter(folder / shard.file, manifest.spec) as writer:
        writer.write(columns)
    (folder / "spiece.model").write_bytes(manifest.tokenizer_path.read_bytes())
    shard = dataclasses.replace(shard, sha256=writer.sha256)
    dataclasses.replace(manifest, shards=(shard,), folder=type(manifest.folder)(folder)).save()
    return Manifest.load(folder)


def swap_order(columns):
    a, b = columns["target_positions"][9][:2]
    columns["permutation_rank"][9, [a, b]] = columns["permutation_rank"][9, a]


def unhide_target(columns):
    columns["permutation_rank"][9, columns["target_positions"][9][0]] = 0


def target_at(column):
    def change(columns):
        columns["target_positions"][9, -1] = column

    return change


def value(name, row, new):
    def change(columns):
        columns[name][row] = new

    return change


@pytest.mark.parametrize(
    "change,message",
    [
        (swap_order, "record 9: two targets share a place"),
        (unhide_target, "record 9: a context token does not come before all targets"),
        (target_at(31), "record 9: SEP or CLS is a target"),
        (target_at(-1), "record 9: the record has not 5 targets"),
        (target_at(0), "record 9: target_positions are not ascending"),
        (target_at(32), "record 9: the record has not 5 targets"),
        (value("input_ids", (4, 0), 199), "record 4: the record does not go on"),
        (value("input_ids", (4, 31), 9), r"record 4: the segment is not \[reused"),
        (value("input_ids", (4, 3), 200), "record 4: input_ids reach 200"),
        (value("segment_ids", (4, 30), 0), "record 4: segment_ids are not"),
        (value("direction", 4, -1), "record 4: direction is not"),
        (value("stream", 4, 3), "record 4: stream or segment is not"),
        (value("segment", 4, 3), "record 4: stream or segment is not"),
        (value("document_offset", 1, 17), "record 1: document_offset"),
        (value("permutation_rank", (4, 5), 400), "record 4: "),
    ],
)
def test_check_finds_what_is_wrong(records, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        inspect_records.check(rewrite(tmp_path, records, change))


def test_check_compares_with_the_manifest(records, tmp_path):
    manifest = rewrite(tmp_path, records, lambda columns: None)
    assert inspect_records.check(manifest) == records.shards[0].records
    path = manifest.path(manifest.shards[0])
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="slice00000.tfrecord has sha256"):
        inspect_records.check(manifest)
    statistics = {**manifest.statistics, "tokens_written": 1}
    with pytest.raises(UserError, match="statistics.tokens_in"):
        path.write_bytes(records.path(records.shards[0]).read_bytes())
        inspect_records.check(dataclasses.replace(manifest, statistics=statistics))


def test_the_script(records, tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "run_scripts.inspect_records", *arguments]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)

    checked = run(f"--records={records.folder}", "--check")
    assert checked.returncode == 0 and f"all {records.records:,} records" in checked.stdout
    shown = run(f"--records={records.folder}", "--record=2", f"--png={tmp_path / 'mask.png'}")
    assert shown.returncode == 0 and "record 2 of" in shown.stdout and (tmp_path / "mask.png").exists()
    wrong = run(f"--records={tmp_path}")
    assert wrong.returncode == 1 and wrong.stderr.startswith("ERROR: ") and "manifest.json" in wrong.stderr

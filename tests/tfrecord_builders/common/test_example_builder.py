"""Sets of examples that are there already: what a builder replaces, and what it refuses."""

import pathlib
import shutil
import sys

import pytest

from tests.helpers.records.builders import contents
from tests.helpers.records.labelled import builder, table
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet, ExampleWriter


def digests(root: pathlib.Path) -> dict[str, str]:
    return {path.parent.name: ExampleSet.load(path).digest for path in root.glob("*/manifest.json")}


@pytest.fixture
def build(tmp_path, tokenizer_file):
    """Builds classification sets of as many rows as are given, in tmp_path/set."""

    def build(seq_len=32, overwrite=False, **rows):
        texts = {split: [(f"ka mi {n}", n % 2) for n in range(count)] for split, count in rows.items()}
        given = {split: table(tmp_path / f"{split}.csv", ("text", "label"), *texts[split]) for split in rows}
        given |= {"output_dir": str(tmp_path / "set"), "seq_len": seq_len, "overwrite": overwrite}
        builder(tmp_path, tokenizer_file)(labels=["0", "1"], **given)
        return digests(tmp_path / "set")

    return build


def test_sets_with_other_settings_are_replaced_on_request_only(build, tmp_path):
    """Else train and dev would be of 64 tokens, and the old test of 32."""
    first = build(train=9, dev=4, test=5)
    before = contents(tmp_path / "set")
    with pytest.raises(UserError, match=r"other settings.*--overwrite.*\n  dev: seq_len: 32 there, 64 now\n"):
        build(train=9, dev=4, seq_len=64)
    assert contents(tmp_path / "set") == before
    assert build(train=9, dev=4, test=5) == first  # the same command builds them again
    assert sorted(build(train=9, dev=4, seq_len=64, overwrite=True)) == ["dev", "train"]


def test_splits_are_added_and_new_training_data_come_with_all_splits(build, tmp_path):
    first = build(train=9, dev=4)
    assert build(test=5) | first == digests(tmp_path / "set")
    assert build(test=6)["train"] == first["train"]  # of other data to predict for
    before = contents(tmp_path / "set")
    with pytest.raises(UserError, match="a new train next to the old dev, test: build dev, test, too"):
        build(train=8)
    assert contents(tmp_path / "set") == before
    assert sorted(build(train=8, dev=4, test=6)) == ["dev", "test", "train"]


def test_a_build_that_fails_leaves_no_old_split_next_to_new_ones(build, tmp_path, monkeypatch):
    build(train=9, dev=4)
    monkeypatch.setattr(ExampleWriter, "count_lengths", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        build(train=8, dev=4)
    assert not digests(tmp_path / "set")
    monkeypatch.undo()
    assert sorted(build(train=8, dev=4)) == ["dev", "train"]


def test_runs_next_to_splits_are_no_splits(build, tmp_path):
    build(train=9, dev=4)
    run = tmp_path / "set" / "run"
    shutil.copytree(tmp_path / "set" / "train", run)
    (run / "ckpt-5.index").write_text("")
    before = contents(run)
    build(train=9, dev=4, seq_len=64, overwrite=True)
    assert contents(run) == before

"""Builds that are killed, disturbed, short of room or remote: a whole set or a clear error, no half a set."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest
import tensorflow as tf
from etils import epath

from tests.helpers.records.builders import contents
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.common import runners
from tfrecord_builders.corpus import shards
from tfrecord_builders.pretraining import worker
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.ownership import folder_lease

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
MEMORY = pathlib.Path("/dev/shm")  # a disk in memory, where nothing waits for fsync


@pytest.mark.integration
@pytest.mark.parametrize("kills,every", [(10, 5), pytest.param(100, 1, marks=pytest.mark.long)])
def test_killed_builds_resume(corpus_file, tokenizer_file, kills, every):
    """See killed_builds, which does it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        command = [sys.executable, "-m", "tests.helpers.training.killed_builds", folder]
        command += map(str, (corpus_file, tokenizer_file, kills, every))
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == kills and told["builds"] >= 1
    counts = told["operations"]
    assert len(counts) == 5 and min(counts.values()) >= 10 // every and counts["new"] >= 30 // every


def states(folder):
    return {path.name: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}


@pytest.mark.parametrize("changes", [{}, {"num_workers": 2}])
def test_a_whole_set_is_left_alone(build, tmp_path, capsys, changes):
    first = build(tmp_path / "set")
    before = states(tmp_path / "set")
    assert build(tmp_path / "set", progress=True, **changes) == first
    assert states(tmp_path / "set") == before
    assert "is whole and of this text: nothing was written" in capsys.readouterr().err


def test_what_a_whole_set_has_lost_is_built_again(build, tmp_path):
    folder = tmp_path / "set"
    first = build(folder)
    content = contents(folder)
    shards = sorted(folder.glob("*.tfrecord"))
    before = states(folder)
    shards[0].unlink()
    shards[1].write_bytes(shards[1].read_bytes()[:-1] + b"?")
    (folder / "spiece.model").write_bytes(b"")
    for name in (shards[2].name + ".tmp123-0a1b", shards[0].name + worker.DONE_SUFFIX):
        (folder / name).write_bytes(b"half")
    assert build(folder) == first
    assert contents(folder) == content
    assert states(folder)[shards[2].name] == before[shards[2].name]


def test_a_second_build_of_the_same_folder_is_refused(build, tmp_path):
    refused = pytest.raises(UserError, match=rf"{tmp_path} is in use by process \d+ .*building records")
    with folder_lease(tmp_path, "building records", "--output_dir"), refused:
        build(tmp_path)
    assert build(tmp_path).records


@pytest.mark.parametrize("change", [str.swapcase, lambda text: text[:-5000]], ids=["other", "shorter"])
def test_a_corpus_that_changes(build, tmp_path, monkeypatch, change):
    """Before the manifest is written, or before the last slice is read."""
    path = tmp_path / "corpus.txt"
    path.write_text(make_text(100))
    real, calls = worker.build_job, []

    def change_and_build(job):
        calls.append(job)
        if len(calls) == 2:
            path.write_text(change(path.read_text()))
        return real(job)

    monkeypatch.setattr(worker, "build_job", change_and_build)
    with pytest.raises(UserError, match=f"{path} (was changed|became shorter)"):
        build(tmp_path / "set", input=[str(path)], slice_mb=0.01)
    assert not (tmp_path / "set" / "manifest.json").exists() and len(calls) > 1


def test_a_build_resumes_with_a_corrected_corpus(build, tmp_path, monkeypatch):
    """One bad line does not cost what was built; another corpus and changes under a whole set are refused."""
    monkeypatch.setattr(shards, "_SAMPLED_BYTES", 1)  # the bad line is not among those looked at first
    corpus, folder = tmp_path / "corpus", tmp_path / "set"
    corpus.mkdir()
    (corpus / "a.txt").write_text(make_text(100))
    (corpus / "z.jsonl").write_text('{"text": "Good."}\nbad\n')
    settings = {"input": [str(corpus)], "slice_mb": 0.005}
    with pytest.raises(UserError, match="z.jsonl, line 2 .* is not json"):
        build(folder, **settings)
    kept = {name: time for name, time in states(folder).items() if name.endswith(".tfrecord")}
    assert kept
    (corpus / "z.jsonl").write_text('{"text": "Good."}\n{"text": "Not bad."}\n')
    (corpus / "b.txt").write_text("One more.\n")
    with pytest.raises(UserError, match="corpus: 2 files of .* there, 3 files of .* first that differs"):
        build(folder, **settings)
    (corpus / "b.txt").unlink()
    build(folder, **settings)
    build(tmp_path / "undisturbed", **settings)
    content = contents(folder)
    assert kept.items() <= states(folder).items() and content == contents(tmp_path / "undisturbed")
    (corpus / "a.txt").write_text(make_text(90))
    with pytest.raises(UserError, match=r"corpus: 2 files of .* first that differs: a\.txt \([\d,]+ bytes\)"):
        build(folder, **settings)
    assert contents(folder) == content


def test_a_shard_that_is_removed_during_the_build(build, tmp_path, monkeypatch):
    real = worker.build_job

    def build_and_remove(job):
        result = real(job)
        min(tmp_path.glob("*.tfrecord")).unlink()
        return result

    monkeypatch.setattr(worker, "build_job", build_and_remove)
    with pytest.raises(UserError, match="slice00000.tfrecord was removed during the build"):
        build(tmp_path)
    assert not (tmp_path / "manifest.json").exists()


def bucket_contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.integration
def test_records_in_a_bucket_are_those_of_a_disk(build, bucket, corpus_file, tokenizer_file, tmp_path):
    build(tmp_path / "local")
    expected, bucket = bucket_contents(tmp_path / "local"), epath.Path(bucket)
    (bucket / "text").mkdir(parents=True)
    (bucket / "text" / corpus_file.name).write_bytes(pathlib.Path(corpus_file).read_bytes())
    (bucket / "spiece.model").write_bytes(tokenizer_file.read_bytes())
    paths = {"input": [str(bucket / "text" / "*.txt")], "tokenizer": str(bucket / "spiece.model")}
    folder = bucket / "records"
    first = build(folder, **paths)
    assert bucket_contents(folder) == expected
    assert build(folder, **paths) == first
    (folder / first.shards[1].file).unlink()
    (folder / "manifest.json").rename(folder / "build.json")
    assert build(folder, **paths) == first
    assert bucket_contents(folder) == expected


def test_errors_of_remote_file_systems_are_one_line(bucket, monkeypatch, capsys):
    with pytest.raises(UserError, match=rf"{bucket}/none.* \(NotFoundError of the file system\)"):
        list(runners.run_jobs(tf.io.gfile.listdir, [f"{bucket}/none"]))
    monkeypatch.setattr(errors.app, "run", lambda guarded, **_: guarded(["script"]))
    with pytest.raises(SystemExit) as ended:
        errors.run(lambda _: tf.io.gfile.listdir(f"{bucket}/none"))
    assert ended.value.code == 1
    assert re.fullmatch(r"ERROR: .*NotFoundError of the file system.*\n", capsys.readouterr().err)


def test_errors_of_operations_are_not_file_system_errors():
    with pytest.raises(tf.errors.NotFoundError), errors.tf_errors_as_user_errors():
        tf.io.read_file("/none").numpy()

"""gs:// paths, by TensorFlow's file systems: the one in memory stands in for a bucket."""

import pathlib
import re

import pytest
from etils import epath

from tfrecord_builders.common import runners
from xlnet_tf import errors
from xlnet_tf.errors import UserError

tf = pytest.importorskip("tensorflow")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.integration
def test_records_in_a_bucket_are_those_of_a_disk(build, bucket, corpus_file, tokenizer_file, tmp_path):
    build(tmp_path / "local")
    expected, bucket = contents(tmp_path / "local"), epath.Path(bucket)
    (bucket / "text").mkdir(parents=True)
    (bucket / "text" / corpus_file.name).write_bytes(pathlib.Path(corpus_file).read_bytes())
    (bucket / "spiece.model").write_bytes(tokenizer_file.read_bytes())
    paths = {"input": [str(bucket / "text" / "*.txt")], "tokenizer": str(bucket / "spiece.model")}
    folder = bucket / "records"
    first = build(folder, **paths)
    assert contents(folder) == expected
    assert build(folder, **paths) == first
    (folder / first.shards[1].file).unlink()
    (folder / "manifest.json").rename(folder / "build.json")
    assert build(folder, **paths) == first
    assert contents(folder) == expected


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

"""The pretraining builder end to end, on a made-up language."""

import gzip

import numpy as np
import pyarrow.parquet
import pytest

from tests.helpers.commands import run_in_fork
from tests.helpers.records.builders import contents
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.pretraining import token_stream, worker
from tfrecord_builders.pretraining.build import build_pretraining_records
from xlnet_tf.records.manifest import Manifest, shard_name
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.special_tokens import EOD_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


@pytest.fixture(scope="session")
def options(options):
    """As those of all tests of builders, of two passes."""
    return lambda folder, **changes: options(folder, **{"num_passes": 2, "seed": 3} | changes)


@pytest.fixture(scope="module")
def records(options, tmp_path_factory):
    return build_pretraining_records(options(tmp_path_factory.mktemp("records")))


def all_columns(manifest):
    """Every shard with its columns."""
    return [(shard, read_shard(manifest.path(shard), manifest.spec)) for shard in manifest.shards]


def test_streams_are_the_corpus(records, corpus_file):
    tokenizer = XLNetTokenizer(model_file=records.tokenizer_path)
    reuse_len, text = records.reuse_len, []
    for document in corpus_file.read_text().strip().split("\n\n"):
        text += [i for line in document.split("\n") for i in tokenizer.encode(line)] + [EOD_ID]
    seen = {(p, d): [] for p in (0, 1) for d in (1, -1)}
    for shard, columns in all_columns(records):
        for direction in (1, -1):
            mine = columns["direction"] == direction
            streams, segment = columns["stream"][mine], columns["segment"][mine]
            reused, rest = np.split(columns["input_ids"][mine], [reuse_len], axis=1)
            np.testing.assert_array_equal(segment == 0, np.diff(streams, prepend=-1) != 0)
            assert segment.max() < records.stream_segments
            for i in range(len(streams) - 1):  # what follows a reused part is the next one's reused part
                a_len = int(np.argmax(rest[i] == SEP_ID))
                np.testing.assert_array_equal(rest[i][:a_len], reused[i + 1][:a_len])
            seen[shard.pass_index, direction].append(reused.ravel()[::direction].tolist())
    corpus_string = ",".join(map(str, text))
    for runs in seen.values():
        position = 0
        for run in runs:  # slices in order; only what the statistics call dropped lies between
            position = corpus_string.find(",".join(map(str, run)), position)
            assert position >= 0
    assert {entry["in"] for entry in records.statistics["tokens_by_pass"]} == {len(text)}


def test_bytes_do_not_depend_on_workers_or_runs_or_compression(records, options, corpus_file, tmp_path):
    expected = contents(records.folder)
    build_pretraining_records(options(tmp_path / "two", num_workers=2))
    assert contents(tmp_path / "two") == expected
    compressed = tmp_path / "corpus.txt.gz"
    compressed.write_bytes(gzip.compress(corpus_file.read_bytes()))
    build_pretraining_records(options(tmp_path / "gz", input=[str(compressed)]))
    found = contents(tmp_path / "gz")
    assert {**found, "manifest.json": None} == {**expected, "manifest.json": None}
    build_pretraining_records(options(tmp_path / "seed", seed=4))
    assert contents(tmp_path / "seed")[records.shards[0].file] != expected[records.shards[0].file]


def test_an_interrupted_build_resumes(records, options, tmp_path, monkeypatch):
    real, build_shard, calls = worker.build_job, worker._build_shard, []

    def interrupted(job):
        if job.corpus_shard.index == 2:
            raise KeyboardInterrupt
        return real(job)

    monkeypatch.setattr(worker, "_build_shard", lambda *a: calls.append((a[2], a[3])) or build_shard(*a))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(worker, "build_job", interrupted)
        build_pretraining_records(options(tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert "manifest.json" not in names and "build.json" in names
    broken = tmp_path / shard_name("train", 1, 0)
    broken.write_bytes(broken.read_bytes()[:-1] + b"?")
    (tmp_path / (broken.name + ".tmp123")).write_bytes(b"half")
    slices = max(s.slice_index for s in records.shards) + 1
    for expected in ([(0, 1)] + [(s, p) for s in range(2, slices) for p in (0, 1)], []):
        calls.clear()
        build_pretraining_records(options(tmp_path))
        assert calls == expected and contents(tmp_path) == contents(records.folder)


def test_the_script(tokenizer_file, tmp_path):
    """Which loads no TensorFlow, whatever the format; data sets are another thing."""
    (tmp_path / "corpus").mkdir()
    documents = make_text(60).strip().split("\n\n")
    pyarrow.parquet.write_table(pyarrow.table({"text": documents}), tmp_path / "corpus/a.parquet")
    (tmp_path / "corpus/a.txt").write_text(make_text(60))
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    common = ["tfrecord_builders.pretraining", f"--tokenizer={tokenizer_file}", "--seq_len=32"]
    common += ["--num_workers=1", "--slice_mb=0.02"]
    good = run_in_fork(*common, f"--output_dir={tmp_path}/good", f"--input={tmp_path}/corpus")
    assert good.returncode == 0 and not good.heavy, good.stderr
    assert "Pretraining records are ready" in good.stdout and "tokens in" in good.stdout
    assert "100%" in good.stderr and f"{Manifest.load(tmp_path / 'good').records:,}" in good.stdout
    bad = run_in_fork(*common, f"--output_dir={tmp_path}/bad", f"--input={tmp_path}/bad.txt")
    assert bad.returncode == 1 and "Traceback" not in bad.stderr
    assert bad.stderr.strip().split("\n")[-1].startswith("ERROR: ") and "is not UTF-8" in bad.stderr
    assert not (tmp_path / "bad" / "manifest.json").exists()


def test_sentence_split(tokenizer_file):
    tokenizer = XLNetTokenizer(model_file=tokenizer_file)
    lines = ["Kato went home. Did Ren? He sold it for 5,000. Why not?", "Bor.", "", "Toqui saw.", ""]
    stream, statistics = token_stream.tokenize(tokenizer, lines, True, "en")
    sentences = ["Kato went home.", "Did Ren?", "He sold it for 5,000.", "Why not?", "Bor.", "Toqui saw."]
    lengths = np.array([len(tokenizer.encode(s)) for s in sentences])
    lengths[[4, 5]] += 1  # <eod>
    np.testing.assert_array_equal(stream.sentence_ends, np.cumsum(lengths))
    np.testing.assert_array_equal(stream.document_starts, [0, lengths[:5].sum()])
    assert statistics["sentences"] == 6 and statistics["documents"] == 2
    assert stream.tokens[lengths[:5].sum() - 1] == EOD_ID == stream.tokens[-1]


def test_a_folder_of_the_users_own_called_scratch_stays(tmp_path, options):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "notes.txt").write_text("mine")
    build_pretraining_records(options(tmp_path, num_passes=1))
    assert (tmp_path / "scratch" / "notes.txt").read_text() == "mine"

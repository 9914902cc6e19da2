"""The pretraining builder end to end, on a made-up language."""

import gzip
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow.parquet
import pytest

from tests.conftest import REPOSITORY
from tests.helpers.commands import run_in_fork
from tests.tfrecord_builders.conftest import make_text
from tests.tfrecord_builders.pretraining.conftest import hashes
from tfrecord_builders.pretraining import token_stream, worker
from tfrecord_builders.pretraining.build import build_pretraining_records
from xlnet_tf.errors import UserError
from xlnet_tf.records import ranks
from xlnet_tf.records.manifest import Manifest, shard_name
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.special_tokens import CLS_ID, EOD_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


def run_builder(folder, *arguments):
    """Runs the script; returns the finished process."""
    command = [sys.executable, "-m", "tfrecord_builders.pretraining", f"--output_dir={folder}", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def all_columns(manifest):
    """Every shard with its columns."""
    return [(shard, read_shard(manifest.path(shard), manifest.spec)) for shard in manifest.shards]


def test_a_set_is_whole(records):
    assert len(records.shards) == 2 * (max(s.slice_index for s in records.shards) + 1) >= 6
    records.check_files(checksums=True)
    folder = pathlib.Path(records.folder)
    expected = {"manifest.json", "spiece.model"} | {shard.file for shard in records.shards}
    assert {path.name for path in folder.iterdir()} == expected
    records.check_tokenizer(XLNetTokenizer(model_file=records.tokenizer_path).fingerprint)
    records.check_model(200)
    with pytest.raises(UserError, match="n_token is 32000, but tokenizer.vocab_size .* is 200"):
        records.check_model(32000)
    with pytest.raises(UserError, match="sha256 is abc, but tokenizer.sha256"):
        records.check_tokenizer("abc")


def test_streams_are_the_corpus(records, corpus_file):
    tokenizer = XLNetTokenizer(model_file=records.tokenizer_path)
    spec = records.spec
    text = []
    for document in corpus_file.read_text().strip().split("\n\n"):
        text += [i for line in document.split("\n") for i in tokenizer.encode(line)] + [EOD_ID]
    seen = {(p, d): [] for p in (0, 1) for d in (1, -1)}
    for shard, columns in all_columns(records):
        for direction in (1, -1):
            mine = columns["direction"] == direction
            streams, segment = columns["stream"][mine], columns["segment"][mine]
            reused = columns["input_ids"][mine][:, : spec.reuse_len]
            rest = columns["input_ids"][mine][:, spec.reuse_len :]
            new_stream = np.diff(streams, prepend=-1) != 0
            np.testing.assert_array_equal(segment == 0, new_stream)
            assert segment.max() < records.stream_segments
            for i in range(len(streams) - 1):  # what follows a reused part is the next one's reused part
                a_len = int(np.argmax(rest[i] == SEP_ID))
                np.testing.assert_array_equal(rest[i][:a_len], reused[i + 1][:a_len])
            whole = reused.ravel().tolist()
            seen[shard.pass_index, direction].append(whole if direction == 1 else whole[::-1])
    corpus_string = ",".join(map(str, text))
    for runs in seen.values():
        position = 0
        for run in runs:  # slices in order; only what the statistics call dropped lies between
            start = corpus_string.find(",".join(map(str, run)), position)
            assert start >= 0
            position = start
    for entry in records.statistics["tokens_by_pass"]:
        assert entry["in"] == len(text)


def test_every_token_is_accounted_for(records, options, tmp_path):
    statistics = records.statistics
    assert statistics["tokens_in"] == statistics["tokens"] * 4  # two passes, two directions
    for entry in [*statistics["tokens_by_pass"]]:
        assert entry["in"] == entry["written"] + sum(entry["dropped"].values())
        assert 0 < sum(entry["dropped"].values()) < records.seq_len * len(records.shards)
    assert statistics["tokens_in"] == statistics["tokens_written"] + sum(
        statistics["tokens_dropped"].values()
    )
    assert statistics["targets"] == records.records * records.num_predict
    assert sum(int(n) * count for n, count in statistics["target_runs"].items()) == statistics["targets"]
    assert statistics["documents"] == sum(statistics["document_lengths"].values()) == 300
    single = build_pretraining_records(options(tmp_path, num_passes=1, bidirectional=False, use_eod=False))
    assert single.statistics["tokens_in"] == single.statistics["tokens"] == statistics["tokens"] - 300
    assert {shard.backward_segments for shard in single.shards} == {0} and single.directions == ["forward"]


def test_bytes_do_not_depend_on_workers_or_runs_or_compression(records, options, corpus_file, tmp_path):
    expected = hashes(records.folder)
    build_pretraining_records(options(tmp_path / "two", num_workers=2))
    assert hashes(tmp_path / "two") == expected
    compressed = tmp_path / "corpus.txt.gz"
    compressed.write_bytes(gzip.compress(corpus_file.read_bytes()))
    build_pretraining_records(options(tmp_path / "gz", input=[str(compressed)]))
    found = hashes(tmp_path / "gz")
    assert {**found, "manifest.json": None} == {**expected, "manifest.json": None}
    build_pretraining_records(options(tmp_path / "seed", seed=4))
    assert hashes(tmp_path / "seed")[records.shards[0].file] != expected[records.shards[0].file]


def test_an_interrupted_build_resumes(records, options, tmp_path, monkeypatch):
    real, calls = worker.build_job, []

    def interrupted(job):
        if job.corpus_shard.index == 2:
            raise KeyboardInterrupt
        return real(job)

    monkeypatch.setattr(worker, "build_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_pretraining_records(options(tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert "manifest.json" not in names and "build.json" in names
    monkeypatch.setattr(worker, "build_job", real)
    build_shard = worker._build_shard
    monkeypatch.setattr(worker, "_build_shard", lambda *a: calls.append((a[2], a[3])) or build_shard(*a))
    broken = tmp_path / shard_name("train", 1, 0)
    broken.write_bytes(broken.read_bytes()[:-1] + b"?")
    (tmp_path / (broken.name + ".tmp123")).write_bytes(b"half")
    build_pretraining_records(options(tmp_path))
    slices = max(s.slice_index for s in records.shards) + 1
    assert calls == [(0, 1)] + [(s, p) for s in range(2, slices) for p in (0, 1)]
    assert hashes(tmp_path) == hashes(records.folder)
    calls.clear()
    build_pretraining_records(options(tmp_path))
    assert calls == [] and hashes(tmp_path) == hashes(records.folder)


def test_the_script(options, corpus_file, tokenizer_file, tmp_path):
    common = [f"--tokenizer={tokenizer_file}", "--seq_len=32", "--num_workers=2", "--slice_mb=0.02"]
    good = run_builder(tmp_path / "good", f"--input={corpus_file}", *common)
    assert good.returncode == 0, good.stderr
    assert "Pretraining records are ready" in good.stdout and "tokens in" in good.stdout
    assert "100%" in good.stderr
    made = Manifest.load(tmp_path / "good")
    assert f"{made.records:,}" in good.stdout
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    script = "tfrecord_builders.pretraining"
    bad = run_in_fork(script, f"--output_dir={tmp_path}/bad", f"--input={tmp_path}/bad.txt", *common)
    assert bad.returncode == 1
    assert bad.stderr.strip().split("\n")[-1].startswith("ERROR: ") and "is not UTF-8" in bad.stderr
    assert "Traceback" not in bad.stderr
    assert not (tmp_path / "bad" / "manifest.json").exists()


@pytest.mark.parametrize("objective", ["autoregressive", "denoising"])
def test_other_objectives(options, tmp_path, objective):
    manifest = build_pretraining_records(options(tmp_path, objective=objective, num_passes=1))
    spec = manifest.spec
    for _, columns in all_columns(manifest):
        is_target = np.zeros(columns["input_ids"].shape, bool)
        np.put_along_axis(is_target, columns["target_positions"].astype(int), True, axis=1)
        _, query = ranks.expand(columns["permutation_rank"], is_target)
        if objective == "autoregressive":
            assert spec.num_predict == spec.seq_len - 3
            assert (is_target == ~np.isin(columns["input_ids"], (SEP_ID, CLS_ID))).all()
            assert (query == np.tri(spec.seq_len, k=-1, dtype=bool))[is_target].all()
        else:
            assert spec.num_predict == 5
            hidden = is_target | np.isin(columns["input_ids"], (SEP_ID, CLS_ID))
            assert (query == ~hidden[:, None, :])[is_target].all()


def test_compat_has_the_originals_numbers_of_targets(options, tmp_path):
    manifest = build_pretraining_records(options(tmp_path, compat=True, num_passes=1, slice_mb=1.0))
    for _, columns in all_columns(manifest):
        counts = (columns["target_positions"] >= 0).sum(axis=1)
        assert counts.max() == 5 and 2 <= counts.min() < 5


def test_sentence_split(options, tmp_path, tokenizer_file):
    paragraphs = "Kato went home. Did Ren? He sold it for 5,000. Why not?\nBor.\n\nToqui saw.\n"
    tokenizer = XLNetTokenizer(model_file=tokenizer_file)
    lines = paragraphs.strip().split("\n") + [""]
    stream, statistics = token_stream.tokenize(tokenizer, lines, True, "en")
    sentences = ["Kato went home.", "Did Ren?", "He sold it for 5,000.", "Why not?", "Bor.", "Toqui saw."]
    lengths = np.array([len(tokenizer.encode(s)) for s in sentences])
    lengths[[4, 5]] += 1  # <eod>
    np.testing.assert_array_equal(stream.sentence_ends, np.cumsum(lengths))
    np.testing.assert_array_equal(stream.document_starts, [0, lengths[:5].sum()])
    assert statistics["sentences"] == 6 and statistics["documents"] == 2
    assert stream.tokens[lengths[:5].sum() - 1] == EOD_ID == stream.tokens[-1]


def test_builder_loads_no_tensorflow(options, tmp_path):
    """Nor does it while it builds, whatever the format; data sets are another thing."""
    documents = make_text(60).strip().split("\n\n")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"text": documents}), corpus / "a.parquet")
    (corpus / "a.txt").write_text(make_text(60))
    program = (
        "import sys\n"
        "from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records\n"
        f"build_pretraining_records({options(tmp_path / 'out', input=[str(corpus)])!r})\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


def test_a_folder_of_the_users_own_called_scratch_stays(tmp_path, options):
    mine = tmp_path / "scratch" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    build_pretraining_records(options(tmp_path, num_passes=1))
    assert mine.read_text() == "mine"

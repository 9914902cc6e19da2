"""Sharded answers: the same bytes whoever computes them and whatever is killed; each row once."""

import concurrent.futures
import contextlib
import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow.parquet
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from run_scripts.common.answers import inputs_of_row
from run_scripts.common.sharded import job, models, shard
from run_scripts.common.sharded.options import ShardOptions
from tests.conftest import REPOSITORY
from tests.helpers import row_models
from tests.helpers.profiles import examples
from tfrecord_builders import corpus
from tfrecord_builders.common import runners
from tfrecord_builders.corpus.rows import NotUtf8
from xlnet_tf.errors import UserError

TWO_PROCESSES = "--runner=FnApiRunner --direct_num_workers=2 --direct_running_mode=multi_processing"
_WORDS = st.text("abc ", max_size=9).map(lambda text: {"text": text})
_ROW = st.one_of(
    _WORDS, _WORDS, st.sampled_from([{"text": "bad"}, {"text": 3}, {"x": 1}, {"text": "nan", "n": 5}, None])
)


class Killed(BaseException):
    """As kill -9: nothing handles it."""


def answer(data, folder, log, columns=("text", "n"), **changes):
    """Answers a corpus; returns the files of the folder, and how many rows failed."""
    options = ShardOptions(**{"shard_mb": 0.001, "num_workers": 1, "max_failed": 10**6} | changes)
    model = row_models.Echo(str(log))
    source = options.corpus(str(data), "text")
    where = {"output_dir": str(folder), "batch_size": 3, "settings": {"model": "echo"}, "columns": columns}
    job.run("answers", model, source, options.resolved(), **where)
    return contents(folder)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows_of(found, prefix):
    """Returns what the jsonl files of a job with this prefix hold."""
    names = (name for name in sorted(found) if name.startswith(prefix))
    return [json.loads(line) for name in names for line in found[name].splitlines()]


def unreliable(seed, workers):
    """Returns a runner that takes jobs in any order, some twice at the same time, in several threads."""

    def run_jobs(function, jobs, **_):
        jobs = list(jobs)
        order = jobs + random.Random(seed).choices(jobs, k=len(jobs) // 2)
        random.Random(seed + 1).shuffle(order)
        seen = set()
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for one, result in [(one, pool.submit(function, one)) for one in order]:
                found = result.result()
                if one.corpus_shard.index not in seen:
                    seen.add(one.corpus_shard.index)
                    yield one, found

    return run_jobs


@examples(15, 300)
@given(rows=st.lists(_ROW, min_size=1, max_size=60), seed=st.integers(0, 99), workers=st.integers(1, 4),
       kill=st.lists(st.integers(0, 20), max_size=2), packed=st.booleans())  # fmt: skip
def test_each_row_is_answered_once_whatever_is_killed(rows, seed, workers, kill, packed, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("job")
    lines = [b"{" if row is None else json.dumps(row).encode() for row in rows]
    data = tmp_path / ("a.jsonl.gz" if packed else "a.jsonl")
    data.write_bytes((gzip.compress if packed else bytes)(b"\n".join(lines)))
    log = tmp_path / "log"
    log.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ShardOptions, "shard_bytes", 50)
        patched.setattr(shard, "_WINDOW", 2)
        expected = answer(data, tmp_path / "whole", log)
        patched.setattr(runners, "run_jobs", unreliable(seed, workers))
        for batches in [*kill, 0]:
            left = itertools.count(batches, -1)

            def batch(model, texts, left=left):
                if next(left) == 1:
                    raise Killed

            patched.setattr(row_models, "batch", batch)
            with contextlib.suppress(Killed):
                found = answer(data, tmp_path / "killed", log)
    assert found == expected

    answered, failed = rows_of(found, "answers-"), rows_of(found, "failed-")
    good = [row for row in rows if row and row.get("text") not in (None, 3, "bad", "nan")]
    assert [row["text"] for row in answered] == [row["text"] for row in good]
    assert all(row["length"] == len(row["text"]) and row["vector"][0] == 0.1 for row in answered)
    bad = [number for number, row in enumerate(rows, 1) if not any(row is one for one in good)]
    assert [row["line"] for row in failed] == bad
    summary = json.loads(found["answers.json"])
    assert (summary["rows"], summary["failed"]) == (len(rows), len(bad))


@pytest.fixture
def data(tmp_path):
    (tmp_path / "log").mkdir()
    path = tmp_path / "data.jsonl"
    rows = [{"text": "word " * (n % 7), "n": n} for n in range(200)]
    rows[50]["text"] = "bad"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_globs_and_several_files_ask_for_shards(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "part [1].jsonl").touch()
    (tmp_path / "part,1.jsonl").touch()
    for data in ("part-*.jsonl", "part-?.jsonl", "part-[01].jsonl", "PART.PARQUET", "a.csv,b.jsonl"):
        assert ShardOptions.are_wanted(data, given=())
    for data in ("part-1.jsonl", "part [1].jsonl", "part,1.jsonl", ""):
        assert not ShardOptions.are_wanted(data, given=())
    assert ShardOptions.are_wanted("part-1.jsonl", given=["runner"])


def test_a_row_that_always_fails_is_isolated_and_ends_the_job_with_counts(data, tmp_path, capsys):
    def refuse(batch):
        raise UserError("texts[0] has 40,000 pieces; expected at most 32,768 in all.")

    [reason] = shard._isolated(shard.Answerer(dict, refuse, {}), [{"text": "a"}])
    assert reason == "the text has 40,000 pieces; expected at most 32,768 in all."
    with pytest.raises(UserError, match=r"^1 of 200 .*--max_failed=0: .*failed-answers-"):
        answer(data, tmp_path / "out", tmp_path / "log", max_failed=0)
    [failed] = (tmp_path / "out").glob("failed-*")
    assert json.loads(failed.read_text()) == {
        "source": str(data),
        "line": 51,
        "byte": sum(map(len, data.read_bytes().splitlines(keepends=True)[:50])),
        "reason": "ValueError: a bad text",
        "found": '{"text": "bad", "n": 50}',
    }
    assert "200 rows, 1 failed" in capsys.readouterr().out
    # Nothing is computed again, neither to fail again nor with more that may fail.
    batches = len(list((tmp_path / "log").iterdir()))
    answer(data, tmp_path / "out", tmp_path / "log", max_failed=1)
    assert len(list((tmp_path / "log").iterdir())) == batches


@pytest.mark.parametrize("output_format", ["jsonl", "parquet", "tfrecord"])
def test_columns_that_python_cannot_read_spoil_no_job(tmp_path, capsys, output_format):
    """They are written as texts. Only a text that a model is to read must be UTF-8."""
    (tmp_path / "log").mkdir()
    columns = {
        "text": pyarrow.array([b"a", b"b\xff", b"c"]).view(pyarrow.string()),
        "image": [{"bytes": b"\xff\xd8", "path": "a.jpg"}] * 3,
        "latin": pyarrow.array([b"caf\xe9"] * 3).view(pyarrow.string()),
        "day": pyarrow.array([3_000_000] * 3, pyarrow.date32()),
        "took": pyarrow.array([10**17] * 3, pyarrow.duration("s")),
        "when": pyarrow.array([1] * 3, pyarrow.timestamp("s", tz="Mars/Olympus")),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "data.parquet")
    [row, *_] = job.first_rows(ShardOptions().corpus(str(tmp_path / "data.parquet"), "text"), ShardOptions())
    options = {"max_failed": 1, "output_format": output_format}
    answer(tmp_path / "data.parquet", tmp_path / "out", tmp_path / "log", tuple(row.values), **options)
    assert "3 rows, 1 failed" in capsys.readouterr().out
    [failed] = (tmp_path / "out").glob("failed-*")
    failure = json.loads(failed.read_text())
    assert failure["row"] == 2 and failure["found"].startswith(r'{"text": "b\\xff", "image": {"bytes": ')
    for read in (models._text_reader("text"), lambda row: inputs_of_row(row, {"text": 1}, {"text": "text"})):
        assert read(row.values) == {"text": "a"}
        with pytest.raises(UserError, match=r"text is .*b.*xff.*; expected a text in UTF-8"):
            read({"text": NotUtf8(r"b\xff")})
    with pytest.raises(UserError, match="expected a list"):
        inputs_of_row({"options": ["a", NotUtf8("b")]}, {"options": 2}, {"options": "options"})


def test_a_lost_or_damaged_shard_alone_is_answered_again_and_another_job_is_refused(data, tmp_path):
    def again(**changes):
        return answer(data, tmp_path / "out", tmp_path / "log", **changes)

    before = again()
    shards = sorted((tmp_path / "out").glob("answers-*"))
    assert len(shards) > 3 and shards[0].name == f"answers-00000-of-{len(shards):05d}.jsonl"
    shards[1].unlink()
    shards[2].write_bytes(shards[2].read_bytes()[:-5])
    times = {path: path.stat().st_mtime_ns for path in shards if path.exists()}
    assert again() == before
    assert [path for path in shards if path.stat().st_mtime_ns != times.get(path)] == shards[1:3]
    for changes in ({"output_format": "parquet"}, {"shard_mb": 0.002}, {"documents": "files"}):
        with pytest.raises(UserError, match=f"(?s)holds the answers of another job.*  {[*changes][0]}: "):
            again(**changes)
    data.write_text(data.read_text() + "{}\n")
    with pytest.raises(UserError, match="(?s)another job.*  corpus.bytes"):
        again()
    (tmp_path / "out" / "answers.json").unlink()
    with pytest.raises(UserError, match="holds answers-.* of an unknown job"):
        again()
    assert contents(tmp_path / "out") == {name: before[name] for name in before if name != "answers.json"}


def test_all_formats_hold_the_same(data, tmp_path):
    rows = rows_of(answer(data, tmp_path / "jsonl", tmp_path / "log"), "answers-")
    for kind in ("parquet", "tfrecord"):
        answer(data, tmp_path / kind, tmp_path / "log", output_format=kind)
    parts = sorted((tmp_path / "parquet").glob("*.parquet"))
    table = [row for path in parts for row in pyarrow.parquet.read_table(path).to_pylist()]
    records = tf.data.TFRecordDataset(sorted(map(str, (tmp_path / "tfrecord").glob("*.tfrecord"))))
    features = [tf.train.Example.FromString(one.numpy()).features.feature for one in records]
    assert len(rows) == len(table) == len(features) == 199
    for row, of_parquet, record in zip(rows, table, features):
        assert of_parquet["text"] == row["text"] == record["text"].bytes_list.value[0].decode()
        assert of_parquet["given_n"] == str(row["given_n"]) and of_parquet["n"] == row["n"]
        assert of_parquet["vector"] == pytest.approx(row["vector"])
        assert list(record["vector"].float_list.value) == pytest.approx(row["vector"])
        assert list(record["length"].int64_list.value) == [row["length"]] == [of_parquet["length"]]


@pytest.mark.integration
def test_processes_beam_killed_workers_and_one_process_write_the_same_bytes(data, tmp_path):
    data.write_text(data.read_text().replace('"word word ", "n": 100', '"unlucky", "n": 100'))
    deaths = tmp_path / "log.deaths"
    found = answer(data, tmp_path / "killed", tmp_path / "log", num_workers=3)
    assert len(list(deaths.iterdir())) == 2
    assert found == answer(data, tmp_path / "one", tmp_path / "log")
    assert found == answer(data, tmp_path / "three", tmp_path / "log", num_workers=3)
    pytest.importorskip("apache_beam", reason="requirements-beam.txt")
    beam = {"runner": "beam", "beam_options": TWO_PROCESSES}
    assert answer(data, tmp_path / "beam", tmp_path / "log", **beam) == found


@pytest.mark.integration
def test_rows_that_kill_their_process_are_counted_and_the_others_answered(data, tmp_path):
    """Two in one batch, one in another shard; each is answered alone before it counts as failed."""
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for number in (20, 21, 150):
        rows[number]["text"] = f"deadly {number}"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="^4 of 200 rows failed"):  # with the bad one
        answer(data, tmp_path / "out", tmp_path / "log", num_workers=2, max_failed=3)
    found = contents(tmp_path / "out")
    failed = {row["line"]: row["reason"] for row in rows_of(found, "failed-")}
    died = dict.fromkeys((21, 22, 151), "the worker process died while it answered this row alone")
    assert failed == died | {51: failed[51]}
    answered = rows_of(found, "answers-")
    assert [row["given_n"] for row in answered] == [n for n in range(200) if n not in (20, 21, 50, 150)]
    assert not [name for name in found if "deaths" in name or "unfinished" in name]
    # The others are answered in the batches that they have next to rows which raise an error.
    data.write_text(data.read_text().replace("deadly", "bad   "))
    harmless = answer(data, tmp_path / "harmless", tmp_path / "log")
    both = [{name: each[name] for name in each if name.startswith("answers-")} for each in (found, harmless)]
    assert both[0] == both[1]


def test_what_a_dead_worker_was_writing_is_removed(data, tmp_path, monkeypatch):
    unfinished = tmp_path / "out" / "failed-answers-00001-of-00007.jsonl.tmp123-0a1b2c3d"
    monkeypatch.setattr(row_models, "batch", lambda model, texts: unfinished.write_text("{}\n"))
    assert unfinished.name not in answer(data, tmp_path / "out", tmp_path / "log")


@pytest.mark.integration
def test_a_model_that_no_process_can_load_is_an_error(data, tmp_path, monkeypatch):
    monkeypatch.setattr(row_models, "Echo", row_models.Hopeless)
    with pytest.raises(UserError, match="died 3 times before it answered a row .*fewer --num_workers"):
        answer(data, tmp_path / "out", tmp_path / "log", num_workers=2)


def test_a_job_that_answered_nothing_is_in_nobodys_way(data, tmp_path, monkeypatch):
    def fail(self, threads):
        raise UserError("no language model")

    with monkeypatch.context() as patched:
        patched.setattr(row_models.Echo, "load", fail)
        with pytest.raises(UserError, match="no language model"):
            answer(data, tmp_path / "out", tmp_path / "log", shard_mb=0.002)
    expected = answer(data, tmp_path / "other", tmp_path / "log")
    assert answer(data, tmp_path / "out", tmp_path / "log") == expected


def test_a_damaged_file_is_one_error_before_any_row_is_answered(data, tmp_path):
    packed = tmp_path / "packed.jsonl.gz"
    message = (
        rf"^{packed} cannot be read to its end: .*, after byte [\d,]+ of its text\. Is it damaged\? "
        r"Get it again\. No row was answered: repair the file or leave it out"
    )
    for cut in (30, 10):
        packed.write_bytes(gzip.compress(data.read_bytes())[:-cut])
        with pytest.raises(UserError, match=message):
            answer(f"{data},{packed}", tmp_path / "out", tmp_path / "log")
    assert not list((tmp_path / "log").iterdir())
    assert answer(data, tmp_path / "out", tmp_path / "log")


SCRIPT = """
import sys; from tests.helpers import row_models; from run_scripts.common.sharded import job
from run_scripts.common.sharded.options import ShardOptions
if __name__ == '__main__':
    options = ShardOptions(shard_mb=0.001, num_workers=2, max_failed=9).resolved()
    job.run('answers', row_models.Echo(sys.argv[3], 0.05), options.corpus(sys.argv[1], 'text'), options,
            output_dir=sys.argv[2], batch_size=3, settings={'model': 'echo'}, columns=())
"""


@pytest.mark.integration
def test_after_kill_9_the_same_call_resumes(data, tmp_path):
    expected = answer(data, tmp_path / "whole", tmp_path / "log")
    script, out, log = tmp_path / "script.py", tmp_path / "out", tmp_path / "kill_log"
    script.write_text(SCRIPT)
    log.mkdir()
    command = [sys.executable, str(script), str(data), str(out), str(log)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **silent)
    notes = out / "unfinished_answers"
    while not (kept := [*notes.glob("*.json")]):
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    times = {out / note.stem: (out / note.stem).stat().st_mtime_ns for note in kept}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert contents(out) == expected
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_answers_do_not_become_part_of_the_corpus(data, tmp_path):
    (tmp_path / "in").mkdir()
    data.rename(tmp_path / "in" / "data.jsonl")
    message = "^the answers in --output_dir=.* would become part of the corpus .*: choose another folder$"
    for pattern, output, output_format in (
        ("in", "in", "jsonl"),
        ("in", "in/out", "jsonl"),
        ("in/*", "in/out", "jsonl"),
        ("in/*.jsonl", "in", "jsonl"),
        ("in/*.jsonl", "in", "parquet"),  # rows that fail are written as jsonl
    ):
        with pytest.raises(UserError, match=message):
            answer(tmp_path / pattern, tmp_path / output, tmp_path / "log", output_format=output_format)
        assert [path.name for path in (tmp_path / "in").iterdir()] == ["data.jsonl"]


def test_a_corpus_without_a_readable_row_or_with_two_names_for_a_column_is_refused(data, tmp_path):
    (tmp_path / "a.jsonl").write_text("{\n[]\n")
    options = ShardOptions()
    with pytest.raises(UserError, match=r"a.jsonl cannot be read: \S+/a.jsonl, line 1: not json"):
        job.first_rows(options.corpus(str(tmp_path / "a.jsonl"), "text"), options)
    (tmp_path / "b.jsonl").write_text('[]\n{"text": "a"}\n')
    [row] = job.first_rows(options.corpus(f"{tmp_path}/b.jsonl,{tmp_path}/a.jsonl", "text"), options)
    assert row == corpus.CorpusRow(str(tmp_path / "b.jsonl"), 3, {"text": "a"})
    data.write_text('{"text": "a", "n": 1, "given_n": 2}\n')
    with pytest.raises(UserError, match="^the corpus has n and given_n, .* answers n: rename a column"):
        columns = ("text", "n", "given_n")
        answer(data, tmp_path / "out", tmp_path / "log", columns, output_format="parquet")

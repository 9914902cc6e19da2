"""The benchmark's script and what all benchmarks share; nothing is asserted about time."""

import functools
import json

import pytest

from benchmarks import data as benchmark_data
from benchmarks import engines, harness, memory
from benchmarks.step import HUGGING_FACE, OURS
from tests.benchmarks.conftest import run_script
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError


def test_candidates_run_in_turn_and_the_first_round_is_not_counted(monkeypatch):
    clock = [0]
    monkeypatch.setattr(harness.time, "perf_counter", lambda: clock[0])
    seconds = {"a": iter([100, 1, 7, 2]), "b": iter([200, 5, 6, 9])}
    runs = []

    def run(name):
        runs.append(name)
        clock[0] += next(seconds[name])

    timings = harness.interleave({name: functools.partial(run, name) for name in seconds}, 3, "test")
    assert runs == ["a", "b"] * 4
    assert (timings["a"].wall, timings["b"].wall) == (2, 6)


def test_what_is_not_there_or_not_known_is_an_error_that_helps():
    with pytest.raises(UserError, match="nothing.txt does not exist: give --text .*make demo"):
        harness.existing("nothing.txt", harness.DEMO_TEXT, "text")
    with pytest.raises(UserError, match="--modes has fast: expected some of graph, xla"):
        harness.check_known("modes", ["graph", "fast"], ("graph", "xla"))


def test_figures_are_printed_in_columns_and_written_as_json(tmp_path, capsys):
    path = tmp_path / "new" / "report.json"
    harness.publish({"A step": [{"": "ours", "s": float("nan"), "MB": 2500.4}]}, str(path))
    assert json.loads(path.read_text())["A step"] == [{"": "ours", "s": None, "MB": 2500.4}]
    assert capsys.readouterr().out.splitlines()[3:5] == ["        s     MB", "ours  nan  2,500"]


@pytest.mark.integration
def test_script(corpus_file, tokenizer_file, tmp_path):
    output = tmp_path / "figures" / "benchmark.json"
    sources = [f"--text={corpus_file}", f"--tokenizer={tokenizer_file}"]
    sizes = ["--parts=builder,reader", "--seq_len=32", "--repeats=1", f"--output={output}"]
    done = run_script("data", *sources, *sizes)
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text())
    assert len(report) == 4  # the machine, the builder and its stages, the reader
    assert report["machine"]["cores"] >= 1 and report["machine"]["cpu"]
    assert "Reader, 16 rows of 32 tokens and 5 targets" in report
    assert all(part in done.stdout for part in (report["machine"]["date"], "MB/s", "examples/s"))


@pytest.mark.integration
def test_memory_of_training(monkeypatch):
    monkeypatch.setattr(memory, "PRETRAINING", {OURS: [memory.LIBRARIES, "graph"], HUGGING_FACE: ["fused"]})
    monkeypatch.setattr(memory, "FINETUNING", {OURS: ["graph recompute"]})
    options = memory.MemoryOptions(preset="micro", seq_len=32, finetuning_rows=2)
    pretraining, finetuning = memory.measure(options).values()
    names = ["ours libraries", "ours graph", "ours graph recompute"]
    assert [row[""] for row in pretraining + finetuning] == names
    libraries, graph, recompute = (row["GB"] for row in pretraining + finetuning)
    assert 0.1 < libraries < graph < 5 and libraries < recompute < 5


SIZES = {"seq_len": 32, "num_predict": 4}


def test_builder(corpus_file, tokenizer_file):
    before = [getattr(owner, name) for owner, name, _ in benchmark_data.STAGES]
    result = benchmark_data.measure_builder(corpus_file, str(tokenizer_file), 1, **SIZES)
    rates, shares = result.values()
    assert [row[""] for row in rates] == ["builder", "sentencepiece"]
    assert all(row["MB/s"] > 0 and row["MB per CPU s"] > 0 for row in rates)
    shares = {row[""]: row["share"] for row in shares}
    assert set(shares) == {"other", "read and clean", "encode", "sample", "statistics", "write"}
    assert all(share > 0 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1)
    assert [getattr(owner, name) for owner, name, _ in benchmark_data.STAGES] == before


def test_the_time_of_an_inner_stage_is_not_the_outer_stages(monkeypatch):
    clock = [0.0]

    class Library:
        @staticmethod
        def inner():
            clock[0] += 1

        @staticmethod
        def outer():
            clock[0] += 10
            Library.inner()
            clock[0] += 100

    monkeypatch.setattr(benchmark_data, "STAGES", ((Library, "inner", "in"), (Library, "outer", "out")))
    monkeypatch.setattr(benchmark_data.time, "perf_counter", lambda: clock[0])
    with benchmark_data.timed_stages() as seconds:
        clock[0] += 1000
        Library.outer()
    assert seconds == {"in": 1, "out": 110, "other": 1000}


@pytest.mark.integration
def test_reader(corpus_file, tokenizer_file):
    result = benchmark_data.measure_reader(corpus_file, str(tokenizer_file), 1, rows=4, batches=3, **SIZES)
    [figures] = result["Reader, 4 rows of 32 tokens and 4 targets"]
    assert figures["examples/s"] > 0
    # int32 ids, uint8 segments and int16 ranks of 32 tokens; int16 targets; direction, next sentence and
    # stream start of a byte each, and the int32 document offset.
    assert figures["bytes an example, to the device"] == 32 * (4 + 1 + 2) + 4 * 2 + 3 + 4


ENGINE_SIZES = {"rows": 4, "seq_len": 32, "num_predict": 4}


@pytest.mark.long
def test_builder_and_embeddings_are_measured_on_every_engine(corpus_file, tokenizer_file):
    pytest.importorskip("apache_beam", reason="requirements-beam.txt")
    config = XLNetConfig.preset("micro")
    found = engines.measure_engines(
        corpus_file, str(tokenizer_file), config, engines=["local", "beam"], workers=[2], **ENGINE_SIZES
    )
    assert [title.split(",")[0] for title in found] == ["Builder", "Embeddings"]
    for rows in found.values():
        assert [row[""] for row in rows] == ["local, 2 workers", "beam, 2 workers"]
        assert set(rows[0]) == {"", "per s", "s to start", "per CPU s", "CPU s to start"}


def test_what_the_start_hides_is_no_rate():
    """A larger run that happens to take no longer once gave a negative rate."""
    assert engines._rate_and_start(600, "s", 17.0, 23.0) == {"per s": 200.0, "s to start": 14.0}
    assert engines._rate_and_start(600, "s", 17.0, 16.0) == {"per s": None, "s to start": None}

"""The benchmark's script and what all benchmarks share; nothing is asserted about time."""

import functools
import json

import pytest

from benchmarks import harness, memory
from benchmarks.step import HUGGING_FACE, OURS
from tests.benchmarks.conftest import run_script
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


def test_a_missing_text_is_an_error_that_helps():
    with pytest.raises(UserError, match="nothing.txt does not exist: give --text .*make demo"):
        harness.existing("nothing.txt", harness.DEMO_TEXT, "text")
    with pytest.raises(UserError, match="nowhere.model does not exist: give --tokenizer"):
        harness.existing(None, "nowhere.model", "tokenizer")


def test_figures_are_printed_in_columns_and_written_as_json(tmp_path, capsys):
    path = tmp_path / "new" / "report.json"
    rows = [
        {"": "ours", "s": 0.12345, "steps": 12000},
        {"": "Model Garden's", "s": float("nan"), "MB": 2500.4},
    ]
    harness.publish({"A step": rows}, str(path))
    assert json.loads(path.read_text())["A step"][1] == {"": "Model Garden's", "s": None, "MB": 2500.4}
    assert capsys.readouterr().out.splitlines()[2:6] == [
        "A step",
        "                     s   steps     MB",
        "ours            0.1235  12,000",
        "Model Garden's     nan          2,500",
    ]


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


def test_scripts_refuse_what_they_do_not_know():
    done = run_script("data", "--workers=1,0,two")
    assert done.returncode == 1
    assert "ERROR: --workers has 0, two: expected numbers of processes" in done.stderr
    with pytest.raises(UserError, match="--modes has fast: expected some of graph, xla"):
        harness.check_known("modes", ["graph", "fast"], ("graph", "xla"))


@pytest.mark.integration
def test_memory_of_training(monkeypatch):
    monkeypatch.setattr(memory, "PRETRAINING", {OURS: [memory.LIBRARIES, "graph"], HUGGING_FACE: ["fused"]})
    monkeypatch.setattr(memory, "FINETUNING", {OURS: ["graph recompute"]})
    options = memory.MemoryOptions(preset="micro", seq_len=32, finetuning_rows=2)
    pretraining, finetuning = memory.measure(options).values()
    assert [row[""] for row in pretraining + finetuning] == [
        "ours libraries",
        "ours graph",
        "ours graph recompute",
    ]
    libraries, graph, recompute = (row["GB"] for row in pretraining + finetuning)
    assert 0.1 < libraries < graph < 5 and libraries < recompute < 5

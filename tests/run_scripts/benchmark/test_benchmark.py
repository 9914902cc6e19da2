"""The benchmark's script and what all benchmarks share; nothing is asserted about time."""

import functools
import json
import os
import subprocess
import sys

import pytest

from run_scripts.benchmark import timing
from run_scripts.benchmark.step import ALL_PEER_MODES, MODES
from tests.conftest import REPOSITORY
from xlnet_tf.errors import UserError


def test_candidates_run_in_turn_and_the_first_round_is_not_counted(monkeypatch):
    clock = [0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    seconds = {"a": iter([100, 1, 7, 2]), "b": iter([200, 5, 6, 9])}
    runs = []

    def run(name):
        runs.append(name)
        clock[0] += next(seconds[name])

    timings = timing.interleave({name: functools.partial(run, name) for name in seconds}, 3, "test")
    assert runs == ["a", "b"] * 4
    assert (timings["a"].wall, timings["b"].wall) == (2, 6)


def test_a_missing_text_is_an_error_that_helps():
    with pytest.raises(UserError, match="nothing.txt does not exist: give --text .*make demo"):
        timing.existing("nothing.txt", timing.DEMO_TEXT, "text")
    with pytest.raises(UserError, match="nowhere.model does not exist: give --tokenizer"):
        timing.existing(None, "nowhere.model", "tokenizer")


def test_a_report_with_nan_is_valid_json(tmp_path):
    timing.write({"loss": float("nan"), "seconds": [1.5]}, "table", str(tmp_path / "new" / "report.json"))
    assert json.loads((tmp_path / "new" / "report.json").read_text()) == {"loss": None, "seconds": [1.5]}


@pytest.mark.integration
def test_script(corpus_file, tokenizer_file, tmp_path):
    output = tmp_path / "figures" / "benchmark.json"
    done = _run(
        "--what=builder,reader",
        f"--text={corpus_file}",
        f"--tokenizer={tokenizer_file}",
        "--seq_len=32",
        "--repeats=1",
        f"--output={output}",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text())
    assert set(report) == {"machine", "builder", "reader"}
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["cpu"]
    assert report["reader"]["num_predict"] == 5
    assert report["machine"]["date"] in done.stdout
    assert "MB/s of text" in done.stdout
    assert "examples/s" in done.stdout


@pytest.mark.parametrize(("flag", "message"), [
    ("--what=builder,speed", "--what has speed: expected some of builder, workers, engines, reader, gemm, "
     "step, profile, checkpoint"),
    ("--engines=local,spark", "--engines has spark: expected some of local, beam, dask"),
    ("--modes=fast", f"--modes has fast: expected some of {', '.join(MODES)}"),
    ("--peer_modes=fast", f"--peer_modes has fast: expected some of {', '.join(ALL_PEER_MODES)}"),
    ("--workers=1,0,two", "--workers has 0, two: expected numbers of processes, such as 1,2,4"),
])  # fmt: skip
def test_script_refuses_what_it_does_not_know(flag, message):
    done = _run(flag)
    assert done.returncode == 1
    assert done.stderr.strip() == f"ERROR: {message}"


def _run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "run_scripts.benchmark", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
    )

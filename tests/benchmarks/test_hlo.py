"""Saved programs run through JAX on the CPU; nothing is asserted about time."""

import json

import pytest
import tensorflow as tf

from tests.benchmarks.conftest import run_script
from xlnet_tf.errors import UserError
from xlnet_tf.tpu import runner
from xlnet_tf.tpu.lowering import lower


@pytest.fixture
def jax(monkeypatch):
    pytest.importorskip("jax", reason="JAX is an extra: requirements-tpu-compile.txt")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


@pytest.fixture
def hlo(jax):
    """A program that counts its runs, and halves a matrix that it returns the sum of."""
    matrix, runs = tf.Variable(tf.ones([3, 3])), tf.Variable(0, dtype=tf.int64)

    def step(inputs):
        total = tf.reduce_sum(tf.gather(matrix, inputs["rows"]))
        matrix.assign(matrix / 2)
        runs.assign_add(1)
        return total

    return lower(step, {"rows": tf.TensorSpec([2], tf.int32)}).hlo


def test_a_run_continues_with_the_files_of_the_last_one(hlo):
    running = runner.Runner(hlo, "cpu")
    [counter] = [place for place, value in enumerate(running.values) if value.dtype == "int64"]
    [matrix] = [place for place, value in enumerate(running.values) if value.shape == (3, 3)]
    first, before = int(running.values[counter]), float(running.values[matrix].sum())
    assert all(running.step() > 0 for _ in range(3))
    assert int(running.values[counter]) == first + 3
    assert float(running.values[matrix].sum()) == pytest.approx(before / 8)


def test_a_program_that_is_too_large_is_an_error_that_helps(jax):
    def step(inputs):
        row = inputs["row"]
        return tf.reduce_sum(tf.linalg.matmul(row, row, transpose_a=True) ** 2)  # 70 TB between

    large = runner.Runner(lower(step, {"row": tf.TensorSpec([2, 2**22])}).hlo, "cpu")
    with pytest.raises(UserError, match="(?s)RESOURCE_EXHAUSTED.*fewer rows.*--batch_per_core.*--recompute"):
        large.step()


def test_script(hlo, tmp_path):
    path, output = tmp_path / "new" / "step.hlo", tmp_path / "report.json"
    runner.save(str(path), hlo, batch_size=2, seq_len=50, flops=10**9, hardware="cpu")
    options = ["--platform=cpu", "--steps=3", "--peak_tflops=0.5", f"--output={output}"]
    done = run_script("hlo", f"--hlo={path}", *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text())
    assert report["tokens_per_second"] == pytest.approx(100 / report["seconds"])
    assert report["utilisation"] == pytest.approx(1e9 / report["seconds"] / 0.5e12)
    assert report["steps"] == 3
    assert "2 x 50 tokens, for cpu" in done.stdout


def test_a_device_that_is_not_here_is_an_error_that_helps(hlo, tmp_path):
    path = str(tmp_path / "step.hlo")
    runner.save(path, hlo, batch_size=2, seq_len=50, flops=1, hardware="gpu")
    done = run_script("hlo", f"--hlo={path}", "--platform=gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "ERROR: JAX cannot run the program on a gpu" in done.stderr

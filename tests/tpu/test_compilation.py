import importlib.util
import subprocess
import sys
import types

import pytest
import tensorflow as tf

from tests.helpers.training import programs
from xlnet_tf.errors import UserError
from xlnet_tf.tpu import compilation, compiler, topologies
from xlnet_tf.tpu.lowering import lower

compiles = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason="libtpu is not installed: the extra tpu-compile"
)
RESULT = {
    "memory": {"arguments": 5, "outputs": 4, "temporaries": 3, "aliased": 4, "code": 1},
    "cost": {"flops": 7.0, "bytes_accessed": 8.0, "seconds": 0.5},
    "seconds": 2.0,
}


V3 = topologies.find("v3")


def test_a_result_is_read():
    made = compilation.read_result(RESULT, V3)
    assert not made.is_at_peak
    assert (made.arguments, made.hbm, made.flops, made.estimated_seconds) == (5, 9, 7.0, 0.5)
    assert compilation.read_result({"planned": 7}, V3) == compilation.Planned(7)
    with pytest.raises(UserError, match=r"No module named 'libtpu'.*pip install .*tpu-compile"):
        compilation.read_result({"unavailable": "ModuleNotFoundError: No module named 'libtpu'"}, V3)
    with pytest.raises(UserError, match="topology is 'v9': expected one of v2, v3, v4, v5e, v5p, v6e, tpu7x"):
        topologies.find("v9")


def test_an_implausible_time_is_replaced_by_that_at_peak_rates():
    def read(name, flops, accessed, seconds):
        cost = {"flops": flops, "bytes_accessed": accessed, "seconds": seconds}
        return compilation.read_result({**RESULT, "cost": cost}, topologies.find(name))

    for seconds in (-1226.0, 0.0, 0.1):
        made = read("v5e", 197e11, 819e7, seconds)  # 0.1 s and 0.01 s
        assert made.is_at_peak and made.estimated_seconds == pytest.approx(0.11)
    # What the compiler (libtpu 0.0.42.1) counts at most: more than v2's peak was taken to be.
    for name, flops in (("v2", 22.8e12), ("v3", 61.4e12), ("v5p", 394e12)):
        assert not read(name, flops, 0, 1.0).is_at_peak


def test_a_program_that_cannot_be_read_has_its_figures_all_the_same():
    """libtpu 0.0.52 fails on its own program for v5p, v6e and tpu7x."""

    class Executable:
        def hlo_modules(self):
            raise RuntimeError("INTERNAL: RET_CHECK failure")

        def cost_analysis(self):
            return {"flops": 7.0, "bytes accessed": 8.0, "optimal_seconds": -39.0}

        def get_compiled_memory_stats(self):
            return types.SimpleNamespace(**dict.fromkeys(compiler._MEMORY.values(), 5))

    figures = compiler._figures(Executable(), seconds=2.0)
    made = compilation.read_result(figures, topologies.find("tpu7x"))
    assert made.is_at_peak and made.arguments == 5 and made.flops == 7.0


def test_a_crashing_compiler_is_reported(monkeypatch):
    ended = subprocess.CompletedProcess([], -6, stdout="", stderr="Check failed: shape is dense")
    monkeypatch.setattr(compilation.subprocess, "run", lambda *args, **kwargs: ended)
    refused = compilation.compile_program(b"", topologies.find("v3"))
    assert refused.error == "the compiler ended with code -6:\nCheck failed: shape is dense"
    assert not refused.out_of_memory


def test_the_compilers_process_imports_no_tensorflow():
    code = "import sys, xlnet_tf.tpu.compiler; print('tensorflow' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@compiles
def test_a_whole_step_compiles(tmp_path):
    program = programs.step("pretraining", tmp_path, "bfloat16", dropout=0.1)
    for name in ("v3", "v5e"):
        made = compilation.compile_program(program.hlo, topologies.find(name))
        assert isinstance(made, compilation.Compiled), made.error
        assert made.flops > 0 and made.bytes_accessed > made.arguments
        # All but the table of the outputs' places is in the parameters' memory.
        assert 0 <= made.outputs - made.aliased < 4096
        assert 0 < made.estimated_seconds < 1
        assert made.is_at_peak == (name == "v5e")
    planned = compilation.compile_program(program.hlo, topologies.find("v5e"), memory_only=True)
    assert isinstance(planned, compilation.Planned)
    assert made.arguments < planned.hbm < made.hbm


@compiles
@pytest.mark.parametrize("name", topologies.TOPOLOGIES)
def test_the_memory_of_a_core_is_what_its_compiler_says(name):
    shape = tf.TensorSpec([200_000, 200_000], tf.float32)
    program = lower(lambda inputs: inputs["x"] @ inputs["x"] @ inputs["x"], {"x": shape})
    topology = topologies.find(name)
    refused = compilation.compile_program(program.hlo, topology, memory_only=True)
    assert refused.out_of_memory
    assert f"available HBM ({topology.hbm_bytes / 2**30:.2f}G)" in refused.error


@compiles
def test_a_program_that_the_compiler_refuses_comes_with_its_words():
    refused = compilation.compile_program(b"no program", topologies.find("v3"))
    assert "HloModule" in refused.error or "parse" in refused.error.lower()
    assert not refused.out_of_memory

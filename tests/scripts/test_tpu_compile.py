import dataclasses

import pytest
from absl import flags

from run_scripts import tpu_compile
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.tpu import compilation
from xlnet_tf.tpu.compilation import Compiled, Refused
from xlnet_tf.tpu.lowering import Program

SMALL = ("--seq_len=16", "--vocab_size=50", "--params_override=" + ",".join(
    f"task.model.{name}={value}"
    for name, value in {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16}.items()
))  # fmt: skip
_GIB = 1 << 30


@pytest.fixture
def run(monkeypatch):
    """Returns a function that runs the script with flags; steps need 3 GiB for each row."""

    def lower_apart(arguments, rows):
        return tpu_compile.Lowered(hlo=rows, loops=0)

    def compile_program(hlo, topology, memory_only):
        if 3 * hlo * _GIB > topology.hbm_bytes:
            return Refused("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm")
        return Compiled(3 * hlo * _GIB, 0, 0, 0, 0, 1e12, 1e9, 0.5, 1.0)

    monkeypatch.setattr(tpu_compile, "lower_apart", lower_apart)
    monkeypatch.setattr(compilation, "compile_program", compile_program)
    return lambda *arguments: tpu_compile.run(parsed(*arguments), arguments)


def parsed(*arguments: str) -> flags.FlagValues:
    values = flags.FlagValues()
    tpu_compile.define_flags(values)
    values(["tpu_compile", *arguments])
    return values


def test_a_step_is_compiled_for_each_topology(run):
    rows, loops = run("--topology=v3,v6e", "--batch_per_core=2")
    compiled = [(row.topology.name, row.batch_per_core, row.largest) for row in rows]
    assert (compiled, loops) == ([("v3", 2, False), ("v6e", 2, False)], 0)


def test_a_tasks_data_are_made_up():
    program = tpu_compile.program_of_rows(parsed(*SMALL, "--task=race", "--sequences=3"))(2)
    inputs = [kind for kind in program.parameters() if kind not in program.donated()]
    assert ("s32", (2, 3 * 16)) in inputs  # token ids of three options


def test_the_largest_batch_is_searched_for_each_topology(run):
    rows, _ = run("--topology=v2,v3", "--find_max_batch", "--batch_per_core=1")
    assert [(row.topology.name, row.batch_per_core) for row in rows if row.largest] == [("v2", 2), ("v3", 5)]
    refused = [row.batch_per_core for row in rows if isinstance(row.outcome, Refused)]
    assert refused == [3, 6]


def test_only_multiples_are_tried(run):
    rows, _ = run("--topology=v6e", "--find_max_batch", "--batch_per_core=16", "--multiple=4")
    assert [row.batch_per_core for row in rows if row.largest] == [8]
    assert all(row.batch_per_core % 4 == 0 for row in rows)


def test_a_search_keeps_to_what_the_parts_of_a_step_divide(run, tmp_path):
    parts = tmp_path / "parts.yaml"
    parts.write_text("trainer: {accumulation_steps: 2}\n")
    flags_of_search = ("--find_max_batch", "--multiple=3", f"--config_file={parts}")
    rows, _ = run("--topology=v5p", "--batch_per_core=64", *flags_of_search)
    assert [row.batch_per_core for row in rows if row.largest] == [30]  # 31 would fit
    assert all(row.batch_per_core % 6 == 0 for row in rows)


@pytest.mark.parametrize("how", ["run", "save_hlo"])
def test_rows_that_the_parts_of_a_step_do_not_divide_are_told(run, tmp_path, how):
    arguments = ("--accumulation_steps=8", f"--save_hlo={tmp_path}/step.hlo")
    with pytest.raises(
        UserError, match="--batch_per_core is 4 with accumulation_steps 8: expected a multiple of 8"
    ):
        run(*arguments) if how == "run" else tpu_compile.save_hlo(parsed(*arguments))


def test_model_gardens_rows_are_even(run):
    peer = ("--peer=model_garden", "--memory_len=0")
    with pytest.raises(UserError, match="is 3 with .*--peer=model_garden: expected a multiple of 2"):
        run(*peer, "--batch_per_core=3")
    rows, _ = run(*peer, "--topology=v2", "--find_max_batch", "--batch_per_core=3")
    assert [row.batch_per_core for row in rows if row.largest] == [2]


def test_a_file_of_the_architecture_tells_the_vocabulary(tmp_path):
    config = dataclasses.replace(XLNetConfig.preset("tiny"), n_token=70, n_layer=1)
    (tmp_path / "config.json").write_text(config.to_json())
    values = parsed("--seq_len=16", f"--model_config={tmp_path}/config.json")
    assert ("f32", (70, config.d_model)) in tpu_compile.program_of_rows(values)(2).parameters()


def test_settings_come_from_files_and_flags(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("task: {model: {preset: base, memory_len: 8}}\ntrainer: {accumulation_steps: 2}\n")
    params = tpu_compile.load_params(
        parsed(f"--config_file={file}", "--memory_len=4", "--dtype=bfloat16", "--recompute")
    )
    assert (params.task.model.preset, params.task.model.memory_len) == ("base", 4)
    assert params.trainer.accumulation_steps == 2
    assert params.trainer.recompute
    assert params.runtime.mixed_precision_dtype == "bfloat16"


def test_model_gardens_step_updates_in_place():
    values = parsed(*SMALL, "--peer=model_garden", "--memory_len=0")
    program = tpu_compile.program_of_rows(values)(2)
    weights = program.donated().count(("f32", (16, 2, 8)))
    assert weights and not weights % 3  # each with two moments
    assert ("f32", (2, 16, 16)) in program.parameters()  # its permutation mask
    values = parsed(*SMALL, "--peer=model_garden", "--memory_len=0", "--gradient_only")
    assert tpu_compile.program_of_rows(values)(2).donated() == []


def test_a_process_of_its_own_lowers_the_same():
    arguments = (*SMALL, "--task=tagging")
    apart, here = tpu_compile.lower_apart(arguments, 2), tpu_compile.lower(arguments, 2)
    assert apart.loops == here.loops == 0
    assert Program(apart.hlo).donated() == Program(here.hlo).donated() != []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology=v7"], "topology is 'v7'"),
        (["--hardware=gpu"], "is for --save_hlo"),
    ],
)
def test_a_compiler_that_is_not_here_is_told(run, arguments, message):
    with pytest.raises(UserError, match=message):
        run(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peer=model_garden"], "add --memory_len=0"),
        (["--peer=model_garden", "--memory_len=0", "--dtype=bfloat16"], "float32 only"),
        (["--peer=model_garden", "--task=squad"], "--peer is for pretraining"),
        (["--export=somewhere", "--gradient_only"], "leave out --export"),
        (["--task=squad", "--memory_len=4"], "--memory_len is for pretraining"),
    ],
)
def test_flags_that_make_no_sense_are_told(arguments, message):
    with pytest.raises(UserError, match=message):
        tpu_compile.program_of_rows(parsed(*arguments))

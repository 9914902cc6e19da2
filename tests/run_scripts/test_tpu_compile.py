import dataclasses
import importlib.util
import json
import operator
import re
import sys
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool

import pytest
import tensorflow as tf
from absl import flags

from run_scripts.tpu_compile import __main__
from run_scripts.tpu_compile import plan as tpu_compile
from tests.helpers import command_flags, hlo
from tests.helpers.serving.exports import KINDS
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.serving.export import export
from xlnet_tf.tpu import compilation, steps, synthetic
from xlnet_tf.tpu.compilation import Compiled, NotCompiled
from xlnet_tf.tpu.lowering import Program

SMALL = ("--seq_len=16", "--vocab_size=50", "--params_override=" + ",".join(
    f"task.model.{name}={value}"
    for name, value in {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16}.items()
))  # fmt: skip
_GIB = 1 << 30
LENGTHS = {"seq_len": 512, "num_predict": 85, "memory_len": 384}
KILLED = NotCompiled("the process that traced the program was killed")


@pytest.fixture
def compiler(monkeypatch):
    """A compiler for which steps need 3 GiB for each row, and the number from which on none can be traced."""
    limits = {"traced": 100}

    def lower_apart(arguments, rows, length=None):
        return KILLED if rows > limits["traced"] else tpu_compile.Lowered(rows, 0, LENGTHS)

    def compile_program(hlo, topology, memory_only):
        if 3 * hlo * _GIB > topology.hbm_bytes:
            return NotCompiled("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm")
        return Compiled(3 * hlo * _GIB, 0, 0, 0, 0, 1e12, 1e9, 0.5, 1.0)

    monkeypatch.setattr(tpu_compile, "lower_apart", lower_apart)
    monkeypatch.setattr(compilation, "compile_program", compile_program)
    monkeypatch.setattr(compilation, "check_installed", lambda: None)
    return limits


def test_a_missing_compiler_is_said_before_anything_is_traced(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tpu_compile, "lower_apart", lambda *unused: pytest.fail("traced"))
    with pytest.raises(UserError, match=r"No module named 'libtpu'.*pip install .xlnet-tf.tpu-compile"):
        list(tpu_compile.run(parsed(*SMALL), SMALL))


@pytest.fixture
def run(compiler):
    """Returns a function that runs the script with flags and returns what came of all compilations."""
    return lambda *arguments: list(tpu_compile.run(parsed(*arguments), arguments))[-1]


@pytest.fixture
def main(compiler, monkeypatch):
    """Returns the script's main, as a function of the arguments."""

    def main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tpu_compile", *arguments])
        monkeypatch.setattr(flags, "FLAGS", command_flags.parsed(tpu_compile.define_flags, *arguments))
        __main__.main([])

    return main


def parsed(*arguments: str) -> tpu_compile.CompileOptions:
    return tpu_compile.from_flags(command_flags.parsed(tpu_compile.define_flags, *arguments))


def test_a_step_is_compiled_for_each_topology_and_length(run):
    results = run("--topology=v3,v6e", "--batch_per_core=2")
    compiled = [(row.topology.name, row.batch_per_core, row.largest) for row in results.rows]
    assert compiled == [("v3", 2, False), ("v6e", 2, False)]
    assert (results.loops, results.lengths) == (0, LENGTHS)
    assert results.table().startswith("seq_len 512, num_predict 85, memory_len 384\ntopology")
    of_task = ("--task=classification", "--topology=v3,v5e", "--batch_per_core=2")
    results = run(*of_task, "--lengths=16,32")
    compiled = [(row.topology.name, row.length) for row in results.rows]
    assert compiled == [("v3", 16), ("v3", 32), ("v5e", 16), ("v5e", 32)]
    assert "2 x 16" in results.table()
    with pytest.raises(UserError, match="--lengths has 0, x: expected numbers of tokens"):
        run(*of_task, "--lengths=0,x,8")


@pytest.mark.integration
def test_rows_are_cut_to_the_length_and_read_in_segments():
    def products(length, more=""):
        values = parsed(*SMALL[:-1], f"{SMALL[-1]}{more}", "--task=question_answering")
        program = tpu_compile.program_of_rows(values)(2, length)
        shapes = [tuple(i.shape.dimensions) for c in program.module.computations for i in c.instructions]
        return {shape for shape in shapes if len(shape) == 4 and shape[2] == shape[3]} - {(1, 1, 1, 1)}

    whole, square = products(None), {n: (2, 2, n, n) for n in (8, 16)}
    assert square[16] in whole and square[8] not in whole
    for found in (products(8), products(None, ",task.model.segment_len=8")):
        assert square[8] in found and square[16] not in found
    with pytest.raises(UserError, match="rows of 16 tokens cannot be cut to 24"):
        tpu_compile.program_of_rows(parsed(*SMALL, "--task=tagging"))(2, 24)


def test_a_batch_that_cannot_be_traced_leaves_the_rest_as_it_is(run, compiler):
    compiler["traced"] = 3
    results = run("--topology=v2,v3,v5e", "--find_max_batch", "--batch_per_core=1")
    assert [(row.topology.name, row.batch_per_core) for row in results.rows if row.largest] == [("v2", 2)]
    ends = [(row.topology.name, row.outcome) for row in results.rows if row.ends_search]
    assert ends == [("v3", KILLED), ("v5e", KILLED)]
    assert results.lengths == LENGTHS
    assert re.search("v3, batch [0-9]+ does not compile, which ends the search", results.table())


def test_a_batch_far_too_large_for_the_tpu_is_not_traced(run, monkeypatch):
    """Tracing it would take as much of this machine's memory, and fail for another reason."""
    monkeypatch.setattr(tpu_compile, "lower_apart", lambda *_: pytest.fail("traced"))
    results = run("--topology=v3", "--preset=large", "--batch_per_core=100000")
    assert results.rows[0].outcome.out_of_memory
    expected = "the memory of 100,000 rows alone takes 3774.87 GB of the 16.62 GB of a core. Give fewer rows"
    assert f"v3, batch 100000 is too large:\n    RESOURCE_EXHAUSTED: {expected}" in results.table()


@pytest.mark.parametrize("end", [BrokenProcessPool, MemoryError])
def test_a_process_that_ends_for_want_of_memory_is_a_refusal(monkeypatch, end):
    def submit(*_):
        raise end

    monkeypatch.setattr(futures, "ProcessPoolExecutor", type("Ending", (futures.Executor,), {
        "__init__": lambda *_: None, "submit": submit
    }))  # fmt: skip
    refused = tpu_compile.lower_apart([], 64)
    assert "64 rows could not be traced" in refused.error
    assert not refused.out_of_memory  # that is of the TPU

    def program(rows, length):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(tpu_compile, "program_of_rows", lambda values: program)
    with command_flags.fresh_flags(), pytest.raises(MemoryError, match="OOM when allocating"):
        tpu_compile.lower([], 64)  # as Python says it


def test_what_is_done_is_saved_before_the_next_topology(main, compiler, monkeypatch, tmp_path):
    output = tmp_path / "new" / "figures.json"
    compile_program = compilation.compile_program

    def interrupted(hlo, topology, memory_only):
        if topology.name == "v5e":
            raise KeyboardInterrupt
        return compile_program(hlo, topology, memory_only)

    monkeypatch.setattr(compilation, "compile_program", interrupted)
    arguments = ("--topology=v2,v3,v5e", "--batch_per_core=2", f"--output={output}")
    with pytest.raises(KeyboardInterrupt):
        main(*arguments)
    figures = json.loads(output.read_text())
    assert [row["topology"] for row in figures["rows"]] == ["v2", "v3"]
    assert (figures["flags"], figures["lengths"]) == (list(arguments), LENGTHS)


@pytest.mark.parametrize("traced", [0, 100])
def test_a_run_in_which_nothing_compiles_fails(main, compiler, capsys, traced):
    compiler["traced"] = traced
    with pytest.raises(UserError, match="nothing compiles, for the reasons above"):
        main("--topology=v2,v3", "--batch_per_core=6")
    assert "v3, batch 6" in capsys.readouterr().out
    compiler["traced"] = 100
    main("--topology=v2,v6e", "--batch_per_core=6")  # one is enough


@pytest.mark.parametrize(
    ("task", "setting", "unset"),
    [
        ("classification", "alert.label=spam", ""),
        ("classification", "class_weights='spam:2'", "none"),
        ("question_answering", "answer_precision=0.9", 0.0),
        ("pretraining", "general_data.input_path=records/general", ""),
    ],
)
def test_what_evaluations_and_labels_need_is_no_part_of_a_step(monkeypatch, task, setting, unset):
    """So configurations of runs that use it compile, with synthetic data, too."""
    monkeypatch.setattr(steps, "training_step", lambda params, *_: params.task)
    program = tpu_compile.program_of_rows
    arguments = (*SMALL[:-1], f"{SMALL[-1]},task.{setting}", f"--task={task}")
    prepared = program(parsed(*arguments))(2)
    found = operator.attrgetter(setting.partition("=")[0])(prepared)
    assert found == ("balanced" if unset == "none" else unset)  # balanced weights make the same program


def test_the_largest_batch_is_searched_for_each_topology(run, tmp_path):
    def search(*arguments):
        rows = run("--find_max_batch", *arguments).rows
        return rows, [(row.topology.name, row.batch_per_core) for row in rows if row.largest]

    rows, largest = search("--topology=v2,v3", "--batch_per_core=1")
    assert largest == [("v2", 2), ("v3", 5)]
    assert [row.batch_per_core for row in rows if isinstance(row.outcome, NotCompiled)] == [3, 6]
    rows, largest = search("--topology=v6e", "--batch_per_core=16", "--multiple=4")
    assert largest == [("v6e", 8)] and all(row.batch_per_core % 4 == 0 for row in rows)
    (tmp_path / "parts.yaml").write_text("trainer: {accumulation_steps: 2}\n")
    parts = ("--multiple=3", f"--config_file={tmp_path}/parts.yaml")
    rows, largest = search("--topology=v5p", "--batch_per_core=64", *parts)
    assert largest == [("v5p", 30)]  # 31 would fit
    assert all(row.batch_per_core % 6 == 0 for row in rows)


@pytest.mark.parametrize("how", ["run", "save_hlo"])
def test_rows_not_divisible_into_micro_batches_are_refused(run, tmp_path, how):
    arguments = ("--accumulation_steps=8", f"--save_hlo={tmp_path}/step.hlo")
    with pytest.raises(UserError, match="--batch_per_core is 4 .* multiple of 8"):
        run(*arguments) if how == "run" else tpu_compile.save_hlo(parsed(*arguments))


@pytest.mark.integration
def test_a_separate_process_lowers_the_same_program(tmp_path, small_tokenizer):
    arguments = (*SMALL, "--task=tagging")
    apart = tpu_compile.lower_apart(arguments, 2)
    with command_flags.fresh_flags():
        here = tpu_compile.lower(arguments, 2)
    assert apart.loops == here.loops == 0
    assert hlo.donated(Program(apart.hlo)) == hlo.donated(Program(here.hlo)) != []
    kind = KINDS["classification"]
    path = export(kind.module(kind.model(small_tokenizer), small_tokenizer), str(tmp_path / "served"))
    assert tpu_compile.lower_apart([f"--export={path}"], 2).lengths == {"seq_len": 40}


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("--export=served/1", "--task=squad --gradient_only --preset=base --recompute --dtype=float32"),
        ("--save_hlo=step", "--export=served/1 --topology=v3 --find_max_batch --memory_only --output=a.json"),
        ("--data=records", "--seq_len=512 --num_predict=3 --vocab_size=90 --num_labels=2 --sequences=4"),
        ("--model_config=config.json", "--preset=large --vocab_size=90"),
        ("--task=squad", "--num_predict=9 --memory_len=4 --num_labels=3 --sequences=3"),
    ],
)
def test_all_flags_without_effect_are_named(main, asked, given):
    names = [argument.partition("=")[0] for argument in given.split()]
    with pytest.raises(UserError, match="these flags have no effect") as error:
        main(asked, *given.split())
    mode = asked.partition("=")[0]
    message = str(error.value)
    assert message.startswith(f"with {mode}")
    assert sorted(set(re.findall(r"--\w+", message)) - {mode}) == sorted(names)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--export=served/1 --topology=v3 --batch_per_core=8 --find_max_batch --multiple=8 --seq_len=128",
        "--data=records --task=squad --config_file=squad_small --dtype=bfloat16 --recompute --output=a.json",
        "--preset=base --norecompute --dtype=bfloat16 --find_max_batch --memory_only --multiple=8",
    ],
)
def test_flags_with_effect_are_taken(arguments):
    tpu_compile.check_flags(parsed(*arguments.split()))


@pytest.mark.parametrize(("given", "expected"), [([], None), (["--seq_len=512"], 512)])
def test_an_export_is_compiled_for_its_own_length_unless_another_is_given(monkeypatch, given, expected):
    asked = []
    monkeypatch.setattr(steps, "served_signature", lambda *of: asked.append(of))
    tpu_compile.program_of_rows(parsed("--export=served/1", *given))(3)
    assert asked == [("served/1", 3, expected)]


@pytest.mark.integration
def test_shapes_are_those_of_the_data_the_task_and_the_architecture(tmp_path):
    def parameters(rows, *arguments):
        program = tpu_compile.program_of_rows(parsed(*arguments))(rows)
        return program.lengths, hlo.parameters(program)

    synthetic.pretraining_records(str(tmp_path), rows=1, seq_len=20, num_predict=4, vocab_size=50)
    lengths, found = parameters(6, SMALL[-1], f"--data={tmp_path}", "--memory_len=8")
    assert lengths == {"seq_len": 20, "num_predict": 4, "memory_len": 8} and ("s32", (6, 20)) in found
    _, found = parameters(2, *SMALL, "--task=race", "--sequences=3")
    assert ("s32", (2, 3 * 16)) in found  # token ids of three options
    config = dataclasses.replace(XLNetConfig.preset("tiny"), n_token=70, n_layer=1)
    (tmp_path / "config.json").write_text(config.to_json())
    _, found = parameters(2, "--seq_len=16", f"--model_config={tmp_path}/config.json")
    assert ("f32", (70, config.d_model)) in found

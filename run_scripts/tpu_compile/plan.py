"""Compiles a training step or a served model for one TPU core, on a machine that has no TPU."""

import dataclasses
import functools
import itertools
import math
import multiprocessing
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

from absl import flags

from run_scripts.common import experiment, training_flags
from xlnet_tf import errors, files, task_registry
from xlnet_tf import flags as flags_lib
from xlnet_tf.cli import signals
from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting, option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.spans import default_num_predict
from xlnet_tf.tpu import compilation, report, runner, search, topologies
from xlnet_tf.tpu.compilation import NotCompiled, Outcome
from xlnet_tf.tpu.flops import step_flops
from xlnet_tf.tpu.report import CompiledBatch
from xlnet_tf.tpu.topologies import Topology

PRETRAINING = "pretraining"
HARDWARE = ("cpu", "gpu", "tpu")
MEMORY = Setting(
    "memory_len",
    "task.model.memory_len",
    int,
    "Pretraining's tokens of memory; 0: none. Default: three quarters of a segment.",
    0,
)

SETTINGS = (
    *training_flags.MODEL,
    *(s for s in training_flags.TRAINER if s.flag in ("accumulation_steps", "recompute")),
    *(s for s in training_flags.DEVICES if s.flag == "dtype"),
)

# What is asked for -> the flags that have no effect on it.
WITHOUT_EFFECT: Mapping[str, Sequence[str]] = {
    "save_hlo": (
        *("data", "export", "gradient_only"),
        *("topology", "find_max_batch", "multiple", "memory_only", "output"),
    ),
    "export": (
        *("task", "data", "gradient_only", "config_file", "params_override"),
        *("num_predict", "vocab_size", "num_labels", "sequences", "lengths"),
        *(setting.flag for setting in (MEMORY, *SETTINGS)),
    ),
    "data": ("seq_len", "num_predict", "vocab_size", "num_labels", "sequences"),
    "model_config": ("preset", "vocab_size"),
    "nofind_max_batch": ("multiple",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """What is compiled, of which size, and for which TPUs; `given` are the settings' given flags."""

    topology: Sequence[str] = option(f"TPUs to compile for, of {', '.join(topologies.TOPOLOGIES)}.", ("v3",))
    task: str = PRETRAINING
    data: str | None = option("Folder of records or examples, to take lengths and labels from.", None)
    export: str | None = option(
        "A version that xlnet-tf export wrote, instead of a step; its graph as it is, scores shifted.", None
    )
    batch_per_core: int = option("Rows of a core's batch.", 4, least=1)
    find_max_batch: bool = option(
        "Search the largest batch per core; quickest with a --batch_per_core above.", False
    )
    multiple: int = option("With --find_max_batch: try multiples of this many rows only.", 1, least=1)
    memory_only: bool = option(
        "Plan the memory and make no code: a small part of the time (9 of 161 s at two layers).", False
    )
    gradient_only: bool = option("Leave out the update: forward and backward pass alone.", False)
    seq_len: int = option("Tokens of a sequence; of an export by default all that it takes.", 512, least=5)
    lengths: Sequence[str] = option("Tokens that rows of fine-tuning are cut to, a program for each.", ())
    num_predict: int | None = option("Targets of a segment. Default: seq_len / 6.", None, least=1)
    vocab_size: int = option("Pieces of the tokenizer, if no --model_config has them.", 32000, least=10)
    num_labels: int = option("Classes of a text, or tags of a word.", 2, least=1)
    sequences: int = option("Options of a question, or candidates of a query.", 4, least=1)
    config_file: Sequence[str] = option("Yaml file of settings or name of a recipe.", (), repeated=True)
    params_override: str = option("Settings over those of files and flags.", "")
    output: str | None = option("json file for the figures.", None)
    save_hlo: str | None = option("File for the program, to run it with benchmarks/hlo.py.", None)
    hardware: str = option("What --save_hlo writes the program for.", "tpu", choices=HARDWARE)
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def define_flags() -> None:
    flags_lib.define_flags(CompileOptions)
    flags.DEFINE_enum("task", PRETRAINING, [PRETRAINING, *task_registry.names()], "What to train.")
    experiment.check_config_file()
    for setting in (MEMORY, *SETTINGS):
        setting.define()


def from_flags(values: flags.FlagValues) -> CompileOptions:
    """Returns the options that the flags give; for mains."""
    given = flags_lib.given(values, values)
    return flags_lib.from_flags(CompileOptions, values, task=values.task, given=given)


def check_flags(options: CompileOptions) -> None:
    """Raises UserError for given flags that have no effect."""
    asked = [name for name in ("save_hlo", "export", "data", "model_config") if options.given.get(name)]
    asked += ["nofind_max_batch"] * (not options.find_max_batch)
    without_effect = {mode: WITHOUT_EFFECT[mode] for mode in asked}
    without_effect[f"task={options.task}"] = without_effect_on(options.task)
    for mode, names in without_effect.items():
        if useless := [f"--{flag}" for flag in names if flag in options.given]:
            raise UserError(f"with --{mode} these flags have no effect: {', '.join(useless)}. Leave them out")


def without_effect_on(task: str) -> Sequence[str]:
    """Returns the flags that have no effect on the step of a task."""
    if task == PRETRAINING:
        return ("num_labels", "sequences", "lengths")
    entry = task_registry.find(task)
    fixed = {"num_labels": not entry.labels, "sequences": entry.sequences is not None}
    return ("num_predict", MEMORY.flag, *(flag for flag, is_fixed in fixed.items() if is_fixed))


def load_params(options: CompileOptions):
    """Returns the experiment that the flags describe, without its data."""
    if options.task == PRETRAINING:
        from xlnet_tf.tasks.pretraining import task as pretraining

        params = experiment.load(pretraining.EXPERIMENT, (MEMORY, *SETTINGS), options)
    else:
        from xlnet_tf.tasks.label_losses import BALANCED, NONE

        params = experiment.load(task_registry.find(options.task).experiment, SETTINGS, options)
        params.task.reinit_layers = 0  # of init_checkpoint, which no step is compiled with
        if getattr(params.task, "class_weights", NONE) != NONE and not options.data:
            params.task.class_weights = BALANCED  # the same program, and synthetic labels have other names
    # What only evaluations use.
    for name in ("alert", "answer_precision", "general_data"):
        if hasattr(params.task, name):
            setattr(params.task, name, getattr(type(params.task)(), name))
    params.task.validation_data.input_path = ""
    params.task.init_checkpoint = ""
    return params


def row_multiple(options: CompileOptions) -> int:
    """Returns what a core's rows must be a multiple of; refuses other rows unless they are searched for."""
    if options.export:
        return 1
    parts = load_params(options).trainer.accumulation_steps
    if not options.find_max_batch and options.batch_per_core % parts:
        raise UserError(
            f"--batch_per_core is {options.batch_per_core} with accumulation_steps {parts}: "
            f"expected a multiple of {parts}"
        )
    return parts


def lengths_of_flags(options: CompileOptions) -> list[int | None]:
    """Returns the lengths to compile; None: whole rows."""
    if wrong := [length for length in options.lengths if not length.isdecimal() or int(length) < 1]:
        raise UserError(f"--lengths has {', '.join(wrong)}: expected numbers of tokens, such as 16,32")
    return [*map(int, options.lengths)] or [None]


def lower_step(params, options: CompileOptions, rows: int, length: int | None = None):
    """Lowers a training step of this many rows, cut to `length` if given, to a lowering.Program.

    `params` are from `load_params`; their data are replaced.
    """
    from xlnet_tf.tpu import steps, synthetic

    data = params.task.train_data
    data.global_batch_size = rows
    with tempfile.TemporaryDirectory() as folder:
        data.input_path = options.data or folder
        vocab_size = params.task.model.architecture(options.vocab_size).n_token
        sizes = {"seq_len": options.seq_len, "vocab_size": vocab_size}
        if not options.data and options.task == PRETRAINING:
            synthetic.pretraining_records(folder, rows=1, num_predict=options.num_predict, **sizes)
        elif not options.data:
            synthetic.examples(
                folder,
                options.task,
                num_labels=options.num_labels,
                sequences=options.sequences,
                segment_len=getattr(params.task.model, "segment_len", 0),
                **sizes,
            )
        return steps.training_step(params, options.gradient_only, options.hardware, length)


def _memory_len(params, options: CompileOptions) -> int:
    memory_len = params.task.model.memory_len
    return options.seq_len * 3 // 4 if memory_len is None else memory_len


def bytes_of_row(options: CompileOptions) -> int:
    """Returns the bytes of memory of a row; 0 if there are none, or only the data determine them."""
    if options.task != PRETRAINING or options.export or options.data:
        return 0
    params = load_params(options)
    config = params.task.model.architecture(options.vocab_size)
    size = 4 if params.runtime.mixed_precision_dtype == "float32" else 2
    return _memory_len(params, options) * config.n_layer * config.d_model * size


def program_of_rows(options: CompileOptions) -> Callable:
    """Returns the flags' function from a batch's rows and length to its lowering.Program."""
    if options.export:
        from xlnet_tf.tpu import steps

        seq_len = options.seq_len if "seq_len" in options.given else None
        return lambda rows, length=None: steps.served_signature(options.export, rows, seq_len)
    return functools.partial(lower_step, load_params(options), options)


def save_hlo(options: CompileOptions) -> None:
    """Writes the flags' pretraining step, with the notes that benchmarks/hlo.py reads."""
    if options.task != PRETRAINING:
        raise UserError(f"--save_hlo is for a pretraining step: leave out --task={options.task}")
    row_multiple(options)
    params = load_params(options)
    rows, config = options.batch_per_core, params.task.model.architecture(options.vocab_size)
    num_predict = options.num_predict or default_num_predict(options.seq_len)
    flops = step_flops(config, rows, options.seq_len, num_predict, _memory_len(params, options))
    program = lower_step(params, options, rows)
    runner.save(
        options.save_hlo,
        program.hlo,
        batch_size=rows,
        seq_len=options.seq_len,
        flops=flops,
        hardware=options.hardware,
    )
    print(f"{options.save_hlo}: {len(program.hlo) / 1e6:.1f} MB")


class Lowered(NamedTuple):
    """A program, the number of its loops that multiply matrices, and its lengths by name."""

    hlo: bytes
    loops: int
    lengths: Mapping[str, int]


def lower(arguments: Sequence[str], rows: int, length: int | None = None) -> Lowered:
    """Lowers the program of the script's arguments, of this many rows, cut to a length.

    Raises MemoryError if this machine's memory is too small.
    """
    import tensorflow as tf

    errors.quiet()  # in a process of its own, too
    define_flags()
    flags.FLAGS([__name__, *arguments], known_only=True)
    try:
        program = program_of_rows(from_flags(flags.FLAGS))(rows, length)
    except tf.errors.ResourceExhaustedError as error:
        raise MemoryError(error.message) from error
    return Lowered(program.hlo, program.loops_with_products(), program.lengths)


def lower_apart(arguments: Sequence[str], rows: int, length: int | None = None) -> Lowered | NotCompiled:
    """Runs `lower` in a process of its own, as TensorFlow does not give back the memory of Large's variables.

    Returns NotCompiled if the process was killed or ran out of memory.
    """
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return signals.blocked(pool.submit, lower, arguments, rows, length).result()
        except KeyboardInterrupt:
            signals.end_processes(())
            raise
        except (futures.process.BrokenProcessPool, MemoryError):
            return NotCompiled(
                f"a program of {rows} rows could not be traced: its process was killed or found no memory on "
                "this machine. Weights and optimizer state take 12 bytes for each parameter of the model. "
                "Give fewer rows with --batch_per_core, or use a machine with more memory"
            )


class Results(NamedTuple):
    """The results of all compilations so far."""

    rows: list[CompiledBatch]  # each topology's, by rows of the batch
    loops: int  # number of the program's loops that multiply matrices
    lengths: Mapping[str, int]  # the program's lengths by name; empty if none could be traced

    def save(self, path: str, arguments: Sequence[str]) -> None:
        """Writes the figures as json, with the arguments that gave them."""
        figures = {"flags": arguments, **self._asdict(), "rows": [row.to_dict() for row in self.rows]}
        files.make_folder(pathlib.Path(path).parent)
        files.write_json(path, figures)

    def table(self) -> str:
        lengths = ", ".join(f"{name} {value}" for name, value in self.lengths.items())
        return "\n".join([*[lengths] * bool(lengths), report.table(self.rows, self.loops)])


def compile_rows(
    compile_batch: Callable[[int], Outcome],
    topology: Topology,
    rows: int,
    find_largest: bool,
    multiple: int,
    length: int | None = None,
) -> list[CompiledBatch]:
    """Compiles a batch of some rows, or those that a search from it tries; returns each outcome, by rows."""
    if not find_largest:
        return [CompiledBatch(topology, rows, compile_batch(rows), length=length)]
    largest, tried = search.largest_batch(compile_batch, topology.hbm_bytes, rows, multiple)
    [*_, last] = tried
    return [
        CompiledBatch(topology, rows, tried[rows], rows == largest, largest is None and rows == last, length)
        for rows in sorted(tried)
    ]


def run(options: CompileOptions, arguments: Sequence[str]) -> Iterator[Results]:
    """Compiles what the flags describe; yields all results so far, after each topology."""
    if options.hardware != "tpu":
        raise UserError(f"--hardware={options.hardware} is for --save_hlo: the compiler here is that of TPUs")
    if not options.topology:
        raise UserError(f"--topology names no TPU: expected some of {', '.join(topologies.TOPOLOGIES)}")
    wanted = [topologies.find(name) for name in options.topology]
    compilation.check_installed()
    multiple = math.lcm(options.multiple, row_multiple(options))
    program = functools.cache(functools.partial(lower_apart, arguments))  # one serves all topologies
    row_bytes = bytes_of_row(options)
    made: list[CompiledBatch] = []
    traced: list[Lowered] = []
    with ProgressBar(desc="compiling", unit=" programs", disable=None) as bar:
        for topology, length in itertools.product(wanted, lengths_of_flags(options)):

            def outcome(rows: int, topology=topology, length=length) -> Outcome:
                bar.set_postfix_str(f"{topology.name}, batch {rows}{f' x {length}' if length else ''}")
                if refused := compilation.too_large(rows * row_bytes, rows, topology):
                    return refused
                lowered = program(rows, length)
                if isinstance(lowered, NotCompiled):
                    return lowered
                traced.append(lowered)
                result = compilation.compile_program(lowered.hlo, topology, options.memory_only)
                bar.update()
                return result

            sizes = options.batch_per_core, options.find_max_batch, multiple
            made += compile_rows(outcome, topology, *sizes, length)
            loops, lengths = (traced[0].loops, traced[0].lengths) if traced else (0, {})
            yield Results(list(made), loops, lengths)

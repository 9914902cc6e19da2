"""Compiles a training step or a served model for one TPU core, on a machine that has no TPU."""

import functools
import itertools
import math
import multiprocessing
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple

from absl import flags

from run_scripts.common import experiment, training_flags
from xlnet_tf import errors, files, signals, task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting
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
    "integer",
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


def define_flags() -> None:
    number, string, choice = flags.DEFINE_integer, flags.DEFINE_string, flags.DEFINE_enum
    switch = functools.partial(flags.DEFINE_bool, default=False)
    flags.DEFINE_list("topology", ["v3"], f"TPUs to compile for, of {', '.join(topologies.TOPOLOGIES)}.")
    choice("task", PRETRAINING, [PRETRAINING, *task_registry.names()], "What to train.")
    string("data", None, "Folder of records or examples, to take lengths and labels from.")
    string(
        "export",
        None,
        "A version that xlnet-tf export wrote, instead of a step; its graph as it is, scores shifted.",
    )
    number("batch_per_core", 4, "Rows of a core's batch.", lower_bound=1)
    switch(
        "find_max_batch", help="Search the largest batch per core; quickest with a --batch_per_core above."
    )
    number("multiple", 1, "With --find_max_batch: try multiples of this many rows only.", lower_bound=1)
    switch(
        "memory_only",
        help="Plan the memory and make no code: a small part of the time (9 of 161 s at two layers).",
    )
    switch("gradient_only", help="Leave out the update: forward and backward pass alone.")
    number("seq_len", 512, "Tokens of a sequence; of an export by default all that it takes.", lower_bound=5)
    flags.DEFINE_list("lengths", [], "Tokens that rows of fine-tuning are cut to, a program for each.")
    number("num_predict", None, "Targets of a segment. Default: seq_len / 6.", lower_bound=1)
    number("vocab_size", 32000, "Pieces of the tokenizer, if no --model_config has them.", lower_bound=10)
    number("num_labels", 2, "Classes of a text, or tags of a word.", lower_bound=1)
    number("sequences", 4, "Options of a question, or candidates of a query.", lower_bound=1)
    flags.DEFINE_multi_string("config_file", [], "Yaml file of settings or name of a recipe.")
    experiment.check_config_file()
    string("params_override", "", "Settings over those of files and flags.")
    string("output", None, "json file for the figures.")
    string("save_hlo", None, "File for the program, to run it with benchmarks/hlo.py.")
    choice("hardware", "tpu", HARDWARE, "What --save_hlo writes the program for.")
    for setting in (MEMORY, *SETTINGS):
        setting.define()


def check_flags(values: flags.FlagValues) -> None:
    """Refuses flags that were given and have no effect."""
    asked = [name for name in ("save_hlo", "export", "data", "model_config") if values[name].value]
    asked += ["nofind_max_batch"] * (not values.find_max_batch)
    without_effect = {mode: WITHOUT_EFFECT[mode] for mode in asked}
    without_effect[f"task={values.task}"] = without_effect_on(values.task)
    for mode, names in without_effect.items():
        if given := [f"--{flag}" for flag in names if values[flag].present]:
            raise UserError(f"with --{mode} these flags have no effect: {', '.join(given)}. Leave them out")


def without_effect_on(task: str) -> Sequence[str]:
    """Returns the flags that have no effect on the step of a task."""
    if task == PRETRAINING:
        return ("num_labels", "sequences", "lengths")
    entry = task_registry.find(task)
    fixed = {"num_labels": not entry.labels, "sequences": entry.sequences is not None}
    return ("num_predict", MEMORY.flag, *(flag for flag, is_fixed in fixed.items() if is_fixed))


def load_params(values: flags.FlagValues):
    """Returns the experiment that the flags ask for; its data are still to be given."""
    if values.task == PRETRAINING:
        from xlnet_tf.tasks.pretraining import task as pretraining

        params = experiment.load(pretraining.EXPERIMENT, (MEMORY, *SETTINGS), values)
    else:
        from xlnet_tf.tasks.label_losses import BALANCED, NONE

        params = experiment.load(task_registry.find(values.task).experiment, SETTINGS, values)
        params.task.reinit_layers = 0  # of init_checkpoint, which no step is compiled with
        if getattr(params.task, "class_weights", NONE) != NONE and not values.data:
            params.task.class_weights = BALANCED  # the same program, and synthetic labels have other names
    # What only evaluations use.
    for name in ("alert", "answer_precision", "general_data"):
        if hasattr(params.task, name):
            setattr(params.task, name, getattr(type(params.task)(), name))
    params.task.validation_data.input_path = ""
    params.task.init_checkpoint = ""
    return params


def row_multiple(values: flags.FlagValues) -> int:
    """Returns the number that a core's rows must be a multiple of.

    Raises:
        UserError: a setting is unknown or wrong, or --batch_per_core is not a multiple, and none is searched.
    """
    if values.export:
        return 1
    parts = load_params(values).trainer.accumulation_steps
    if not values.find_max_batch and values.batch_per_core % parts:
        raise UserError(
            f"--batch_per_core is {values.batch_per_core} with accumulation_steps {parts}: "
            f"expected a multiple of {parts}"
        )
    return parts


def lengths_of_flags(values: flags.FlagValues) -> list[int | None]:
    """Returns the lengths to compile; None: whole rows."""
    if wrong := [length for length in values.lengths if not length.isdecimal() or int(length) < 1]:
        raise UserError(f"--lengths has {', '.join(wrong)}: expected numbers of tokens, such as 16,32")
    return [*map(int, values.lengths)] or [None]


def lower_step(params, values: flags.FlagValues, rows: int, length: int | None = None):
    """Lowers a training step of this many rows.

    Args:
        params: of `load_params`; its data are replaced.
        length: that rows are cut to; None: they are not.

    Returns:
        A lowering.Program.
    """
    from xlnet_tf.tpu import steps, synthetic

    data = params.task.train_data
    data.global_batch_size = rows
    with tempfile.TemporaryDirectory() as folder:
        data.input_path = values.data or folder
        vocab_size = params.task.model.architecture(values.vocab_size).n_token
        sizes = {"seq_len": values.seq_len, "vocab_size": vocab_size}
        if not values.data and values.task == PRETRAINING:
            synthetic.pretraining_records(folder, rows=1, num_predict=values.num_predict, **sizes)
        elif not values.data:
            synthetic.examples(
                folder,
                values.task,
                num_labels=values.num_labels,
                sequences=values.sequences,
                segment_len=getattr(params.task.model, "segment_len", 0),
                **sizes,
            )
        return steps.training_step(params, values.gradient_only, values.hardware, length)


def _memory_len(params, values: flags.FlagValues) -> int:
    memory_len = params.task.model.memory_len
    return values.seq_len * 3 // 4 if memory_len is None else memory_len


def bytes_of_row(values: flags.FlagValues) -> int:
    """Returns what a step remembers of a row; 0 if that is nothing, or only the data say how much it is."""
    if values.task != PRETRAINING or values.export or values.data:
        return 0
    params = load_params(values)
    config = params.task.model.architecture(values.vocab_size)
    size = 4 if params.runtime.mixed_precision_dtype == "float32" else 2
    return _memory_len(params, values) * config.n_layer * config.d_model * size


def program_of_rows(values: flags.FlagValues) -> Callable:
    """Returns the function from a batch's rows and length to its lowering.Program that the flags ask for."""
    if values.export:
        from xlnet_tf.tpu import steps

        seq_len = values.seq_len if values["seq_len"].present else None
        return lambda rows, length=None: steps.served_signature(values.export, rows, seq_len)
    return functools.partial(lower_step, load_params(values), values)


def save_hlo(values: flags.FlagValues) -> None:
    """Writes the pretraining step that the flags ask for, with what benchmarks/hlo.py reads of it."""
    if values.task != PRETRAINING:
        raise UserError(f"--save_hlo is for a pretraining step: leave out --task={values.task}")
    row_multiple(values)
    params = load_params(values)
    rows, config = values.batch_per_core, params.task.model.architecture(values.vocab_size)
    num_predict = values.num_predict or default_num_predict(values.seq_len)
    flops = step_flops(config, rows, values.seq_len, num_predict, _memory_len(params, values))
    program = lower_step(params, values, rows)
    runner.save(
        values.save_hlo,
        program.hlo,
        batch_size=rows,
        seq_len=values.seq_len,
        flops=flops,
        hardware=values.hardware,
    )
    print(f"{values.save_hlo}: {len(program.hlo) / 1e6:.1f} MB")


class Lowered(NamedTuple):
    """A program, how many of its loops multiply matrices, and the lengths that it was made for, by name."""

    hlo: bytes
    loops: int
    lengths: Mapping[str, int]


def lower(arguments: Sequence[str], rows: int, length: int | None = None) -> Lowered:
    """Lowers the program that the script's arguments ask for, of this many rows, cut to a length.

    Raises:
        UserError: flags, settings and data do not go together.
        MemoryError: this machine's memory is too small.
    """
    import tensorflow as tf

    errors.quiet()  # in a process of its own, too
    define_flags()
    values = flags.FLAGS
    values([__name__, *arguments], known_only=True)
    try:
        program = program_of_rows(values)(rows, length)
    except tf.errors.ResourceExhaustedError as error:
        raise MemoryError(error.message) from error
    return Lowered(program.hlo, program.loops_with_products(), program.lengths)


def lower_apart(arguments: Sequence[str], rows: int, length: int | None = None) -> Lowered | NotCompiled:
    """Does `lower` in a process of its own: TensorFlow does not give back the memory of Large's variables.

    Returns:
        What `lower` does; NotCompiled, if the process was killed or found no memory.

    Raises:
        UserError: what `lower` raises, which more or fewer rows would not change.
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
    """What came of all compilations so far.

    Attributes:
        rows: of each topology, by rows of the batch.
        loops: of the program, that multiply matrices.
        lengths: that the program was made for, by name; empty if none could be traced.
    """

    rows: list[CompiledBatch]
    loops: int
    lengths: Mapping[str, int]

    def save(self, path: str, arguments: Sequence[str]) -> None:
        """Writes the figures as json, with the arguments that they are of."""
        figures = {"flags": arguments, **self._asdict(), "rows": [row.to_dict() for row in self.rows]}
        files.make_folder(pathlib.Path(path).parent)
        files.write_json(path, figures)

    def table(self) -> str:
        """Returns the figures for people."""
        lengths = ", ".join(f"{name} {value}" for name, value in self.lengths.items())
        return "\n".join([*[lengths] * bool(lengths), report.table(self.rows, self.loops)])


def compile_rows(
    compile_batch: Callable[[int], Outcome],
    topology: Topology,
    values: flags.FlagValues,
    multiple: int,
    length: int | None = None,
) -> list[CompiledBatch]:
    """Compiles for one topology the batch that the flags ask for, or those of a search.

    Args:
        compile_batch: of the rows; gives what compiling for the topology came to.
        multiple: search multiples of this many rows only.
        length: that its rows are cut to; None: they are not.

    Returns:
        What came of each compilation, by rows.
    """
    if not values.find_max_batch:
        rows = values.batch_per_core
        return [CompiledBatch(topology, rows, compile_batch(rows), length=length)]
    first = values.batch_per_core
    largest, tried = search.largest_batch(compile_batch, topology.hbm_bytes, first, multiple)
    [*_, last] = tried
    return [
        CompiledBatch(topology, rows, tried[rows], rows == largest, largest is None and rows == last, length)
        for rows in sorted(tried)
    ]


def run(values: flags.FlagValues, arguments: Sequence[str]) -> Iterator[Results]:
    """Compiles what the flags ask for.

    Args:
        arguments: that they were parsed from.

    Yields:
        What came of all compilations so far, after each topology.
    """
    if values.hardware != "tpu":
        raise UserError(f"--hardware={values.hardware} is for --save_hlo: the compiler here is that of TPUs")
    if not values.topology:
        raise UserError(f"--topology names no TPU: expected some of {', '.join(topologies.TOPOLOGIES)}")
    wanted = [topologies.find(name) for name in values.topology]
    compilation.check_installed()
    multiple = math.lcm(values.multiple, row_multiple(values))
    program = functools.cache(functools.partial(lower_apart, arguments))  # one serves all topologies
    row_bytes = bytes_of_row(values)
    made: list[CompiledBatch] = []
    traced: list[Lowered] = []
    with ProgressBar(desc="compiling", unit=" programs", disable=None) as bar:
        for topology, length in itertools.product(wanted, lengths_of_flags(values)):

            def outcome(rows: int, topology=topology, length=length) -> Outcome:
                bar.set_postfix_str(f"{topology.name}, batch {rows}{f' x {length}' if length else ''}")
                if refused := compilation.too_large(rows * row_bytes, rows, topology):
                    return refused
                lowered = program(rows, length)
                if isinstance(lowered, NotCompiled):
                    return lowered
                traced.append(lowered)
                result = compilation.compile_program(lowered.hlo, topology, values.memory_only)
                bar.update()
                return result

            made += compile_rows(outcome, topology, values, multiple, length)
            loops, lengths = (traced[0].loops, traced[0].lengths) if traced else (0, {})
            yield Results(list(made), loops, lengths)

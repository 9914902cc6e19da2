"""Checks a training before its machines are rented: data, sizes, weights, and the step for a TPU.

Shared by the training scripts, for --dry_run. Nothing is trained or written. `params` are the complete
settings of an experiment, `task` is built from params.task.
"""

import copy
import dataclasses
import os
from collections.abc import Iterable, Sequence

import tensorflow as tf
import tf_keras

from xlnet_tf.errors import UserError, prefixed
from xlnet_tf.layers.kernels import device
from xlnet_tf.tasks.sweep import Training
from xlnet_tf.tpu import compilation, report, steps, topologies
from xlnet_tf.tpu.report import gigabytes
from xlnet_tf.training import checks, runtime
from xlnet_tf.training.data import Batching
from xlnet_tf.training.interruption import SMALLER_STEP
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.task import Task
from xlnet_tf.training.tpu_slice import TpuSlice

_ROW = "{:>22}  {}"
_MOST_STEPS = 10_000  # that are looked at for what cutting saves
_ADAM_SLOTS = 2  # a mean and a variance for each weight


@dataclasses.dataclass(frozen=True)
class Machines:
    """What a run will use; `hosts` are machines that read their own rows."""

    text: str
    replicas: int
    hosts: int = 1
    slice: TpuSlice | None = None


def machines(config: runtime.RuntimeConfig, topology: str | None) -> Machines:
    """Returns what a run will use; contacts no TPU and no other host."""
    if topology or config.distribution_strategy == "tpu":
        if not topology:
            raise UserError("--dry_run of --strategy=tpu needs the TPU's kind and size: add --topology=v3-8")
        found = TpuSlice.named(topology)
        if found.hosts > 1 and config.tpu == "local":
            raise UserError(
                f"--tpu=local trains on the devices of one machine, and {found.name} has {found.hosts}: give "
                "the TPU's name, --tpu=NAME, or a --topology of one host"
            )
        text = f"{found.name}: {found.chips} chips, {found.replicas} replicas, {found.hosts} hosts"
        return Machines(text, found.replicas, found.hosts, found)
    if config.distribution_strategy == "multi_worker_mirrored":
        hosts = runtime.check_tf_config(os.environ.get("TF_CONFIG", ""))
        visible = len(tf.config.list_physical_devices("GPU"))
        replicas = len(hosts) * max(1, visible if config.num_gpus < 0 else config.num_gpus)
        return Machines(f"{replicas} replicas on {len(hosts)} hosts", replicas, len(hosts))
    replicas = runtime.prepare(config).num_replicas_in_sync
    return Machines(f"{replicas} {'replica' if replicas == 1 else 'replicas'} on this machine", replicas)


def check_and_print(params, task: Task, topology: str | None, model_dir: str, price: float | None = None):
    check_and_print_all([Training("", params, task, [(params, model_dir)])], topology, price)


def check_and_print_all(
    trainings: Iterable[Training], topology: str | None, price_per_hour: float | None = None
):
    """Checks each training of a sweep and prints it; of all but the first, only what differs.

    The price is for the whole TPU slice of the topology.
    """
    first: list[str] = []
    for training in trainings:
        params, task = training.params, training.task
        with prefixed(training.name):
            where = machines(params.runtime, topology)
            if where.slice:
                compilation.check_installed()
            lines = check(params, task, where, training.runs[0][1]).splitlines()
            for run_params, folder in training.runs[1:]:
                checks.check_resumable(run_params, task, folder)
            if where.slice:
                lines += ["", "The step of one replica, compiled:"]
                lines += compiled(params, task, where, price_per_hour).splitlines()
        if training.name:
            print(f"{training.name}:")
        print("\n".join([line for line in lines if line not in first] or ["as the first"]), flush=True)
        first = first or lines
        if training.again:
            print(f"\nWARNING: {training.again}")
    for warning in task.data.warnings():
        print(f"\nWARNING: {warning}")
    print(f"\nEverything fits. Nothing was trained.{_still_needed(params.runtime, where)}")


def _still_needed(config: runtime.RuntimeConfig, where: Machines) -> str:
    """Names the flags that the run needs and its check does not; "" if there are none."""
    flags = []
    if where.slice and config.distribution_strategy != "tpu":
        flags.append("--strategy=tpu")
    if where.slice and not config.tpu:
        flags.append("--tpu=NAME" + " (or --tpu=local on a TPU VM)" * (where.hosts == 1))
    return f" The run itself also needs {' and '.join(flags)}." if flags else ""


def check(params, task: Task, where: Machines, model_dir: str) -> str:
    checks.check_batch_sizes(params, where.replicas)
    checks.check_settings(params, model_dir)
    if where.hosts == 1 and not where.slice:
        checks.check_memory(params, task, tf.distribute.get_strategy())
    checks.check_resumable(params, task, model_dir)
    build_optimizer(params.trainer.optimizer_config, params.trainer.train_steps, task.n_layer)
    checks.check_data(params, task.data)
    checks.check_inputs(params, task.data, where.replicas, where.hosts)
    model = task.build_model()
    task.initialize(model)
    return "\n".join(_ROW.format(name, value) for name, value in _rows(params, task, where, model).items())


def compiled(params, task: Task, where: Machines, price_per_hour: float | None = None) -> str:
    """Compiles the step for one core of the TPU, which must hold an evaluation's memory as well."""
    alone = copy.deepcopy(params)
    rows = params.task.train_data.global_batch_size // where.replicas
    alone.task.train_data.global_batch_size = rows
    topology = topologies.find(where.slice.generation)
    batches, loops = [], 0
    refused = compilation.too_large(_memory_bytes(params, task, rows), rows, topology)
    for length in reversed(_batching(params, task, where).compiled_lengths):  # the longest is the largest
        if not refused:
            program = steps.training_step(alone, length=length)
        outcome = refused or compilation.compile_program(program.hlo, topology)
        if isinstance(outcome, compilation.NotCompiled):
            raise UserError(_refusal(outcome, where.slice.name, rows, params.trainer.accumulation_steps))
        batches.append(report.CompiledBatch(topology, rows, outcome, length=length))
        loops = program.loops_with_products()
    table = f"{report.table(batches, loops)}{_duration(params, task, where, batches, price_per_hour)}"
    largest = max(batch.outcome.hbm for batch in batches)
    data = params.task.validation_data
    held = _memory_bytes(params, task, data.global_batch_size // where.replicas) if data.input_path else 0
    if not held:
        return table
    # The trainer keeps it along with that of training, from the run's beginning to its end.
    if largest + held > topology.hbm_bytes:
        raise UserError(
            f"the step takes {gigabytes(largest)} of the {gigabytes(topology.hbm_bytes)} of a core of "
            f"{where.slice.name}, and the memory of the evaluation's rows {gigabytes(held)} more: lower "
            f"--dev_batch_size, {data.global_batch_size} now, or batch_size, or raise --accumulation_steps"
        )
    filled = (largest + held) / topology.hbm_bytes
    more = f"{gigabytes(held)} more, {filled:.0%} of the core in all"
    return f"{table}\nThe memory of the evaluation's rows takes {more}."


def _duration(
    params, task: Task, where: Machines, batches: Sequence[report.CompiledBatch], price_per_hour: float | None
) -> str:
    seconds = {batch.length: batch.outcome.estimated_seconds for batch in batches}
    steps = -(-_records(task) // params.task.train_data.global_batch_size)
    total = sum(seconds[length] for length in _batching(params, task, where).lengths_of_steps(0, steps))
    hours = total / steps * params.trainer.train_steps / 3600
    by = "at the chip's peak rates" if batches[0].outcome.is_at_peak else "by these estimates"
    text = f"\nOne pass over the data, {steps:,} steps, takes {total:.1f} s {by}."
    text += f"\nThe training, {params.trainer.train_steps:,} steps, takes {hours:,.2f} h"
    text += f" and costs {hours * price_per_hour:,.2f}." if price_per_hour else "."
    if 0 < params.trainer.max_hours < hours:
        text += f"\nWARNING: --max_hours={params.trainer.max_hours:g} ends it before its last step."
    return text


def _refusal(outcome: compilation.NotCompiled, slice_name: str, rows: int, parts: int) -> str:
    """Says why a step does not compile, and what to do if it is only too large."""
    if not outcome.out_of_memory:
        return f"the step does not compile for a core of {slice_name}: {outcome.error}"
    return (
        f"the step of {rows} rows in {parts} micro-batch(es) does not fit into the memory of a core of "
        f"{slice_name}. {SMALLER_STEP}. The compiler says:\n{outcome.error}"
    )


def _rows(params, task: Task, where: Machines, model: tf_keras.Model) -> dict[str, str]:
    config, data, trainer = task.xlnet_config, params.task.train_data, params.trainer
    weights = sum(weight.shape.num_elements() for weight in model.trainable_variables)
    rows = data.global_batch_size // where.replicas
    tokens, steps = _batching(params, task, where).tokens_of_step(), trainer.train_steps
    saved = checkpoint_bytes(params, task, weights)
    heads = f"{config.n_head} heads of {config.d_head}"
    return {
        "devices": where.text,
        "model": f"{config.n_layer} layers, d_model {config.d_model}, {heads}, d_inner {config.d_inner}",
        "parameters": f"{weights:,}",
        "number type": params.runtime.mixed_precision_dtype,
        "data": f"{data.input_path}: {_records(task):,} records of {tokens // data.global_batch_size} tokens",
        "batch": f"{data.global_batch_size}: {rows} a replica in "
        f"{trainer.accumulation_steps} micro-batch(es), {data.global_batch_size // where.hosts} a host",
        "memory": f"{_memory_len(task)} tokens a row" if _memory_len(task) else "none",
        "steps": f"{steps:,}, {trainer.steps_per_loop} in a loop",
        **_cut_rows(params, task, where),
        "tokens": f"{steps * tokens:,}: the data {steps * data.global_batch_size / _records(task):.2f} times",
        "a checkpoint": f"{gigabytes(saved)}, after each {trainer.checkpoint_interval:,} steps",
        "host memory for its copy": _copies(saved, checkpoint_bytes(params, task, weights, 0), where.hosts),
        "disk for checkpoints": f"{gigabytes(saved * (trainer.max_to_keep + 1))} (the newest "
        f"{trainer.max_to_keep}, and one being written)",
    }


def _cut_rows(params, task: Task, where: Machines) -> dict[str, str]:
    """Returns a row about the lengths that rows are cut to or, packed, their number; empty if whole."""
    batching = _batching(params, task, where)
    if [*batching.compiled_lengths] == [None]:
        return {}
    multiple = None if where.slice or params.runtime.enable_xla else device.length_multiple()
    steps = min(params.trainer.train_steps, _MOST_STEPS)
    epoch = batching.lengths_of_steps(0, steps, multiple)
    part = sum(map(batching.tokens_of_step, epoch)) / (len(epoch) * batching.tokens_of_step())
    is_dynamic = multiple is not None and batching.has_dynamic_length
    few, remain = ", ".join(map(str, batching.compiled_lengths)), f"{part:.1%} of all positions remain"
    if params.task.batching == "packed":
        return {"texts are packed": f"into {'few' if is_dynamic else few} rows a micro-batch; {remain}"}
    return {"rows are cut to": f"{'the longest of each batch' if is_dynamic else f'{few} tokens'}; {remain}"}


def _batching(params, task: Task, where: Machines) -> Batching:
    return task.data.batching(True, where.replicas, params.trainer.accumulation_steps)


def _copies(saved: int, without_memory: int, hosts: int) -> str:
    """Describes what hosts hold while a checkpoint is written; each holds the memory of its own rows."""
    memory = (saved - without_memory) // hosts
    others = f", {gigabytes(memory)} on each of the others" if hosts > 1 and memory else ""
    return f"{gigabytes(without_memory + memory)}{' on the first host' if hosts > 1 else ''}{others}"


def checkpoint_bytes(params, task: Task, weights: int, rows: int | None = None) -> int:
    """Returns a checkpoint's bytes: weights and moments in float32, and the memory of `rows` if saved."""
    memory = _memory_bytes(params, task, params.task.train_data.global_batch_size if rows is None else rows)
    return 4 * weights * (1 + _ADAM_SLOTS) + memory * params.trainer.save_memory


def _memory_bytes(params, task: Task, rows: int) -> int:
    """Returns the bytes of memory of this many rows, and for each token whether it is hidden."""
    config = task.xlnet_config
    number = tf.as_dtype(params.runtime.mixed_precision_dtype).size
    return rows * _memory_len(task) * (config.n_layer * config.d_model * number + 1)


def _memory_len(task: Task) -> int:
    return getattr(task, "memory_len", 0)


def _records(task: Task) -> int:
    return (getattr(task, "train_manifest", None) or task.example_set).records

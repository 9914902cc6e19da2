"""Checks before a run begins, so that errors show at once and not after hours."""

import os

import tensorflow as tf
from absl import logging

from xlnet_tf import files, folders
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE
from xlnet_tf.checkpoints.of_runs import check_name, newest
from xlnet_tf.config import Recompute, XLNetConfig
from xlnet_tf.differences import settings_difference
from xlnet_tf.errors import UserError
from xlnet_tf.training import runtime
from xlnet_tf.training.config import flatten
from xlnet_tf.training.data import TaskData
from xlnet_tf.training.interruption import SMALLER_STEP
from xlnet_tf.training.profile import Profile
from xlnet_tf.training.task import Task

MUST_MATCH_ON_RESUME = (
    "task",
    "trainer.train_steps",
    "trainer.optimizer_config",
    "runtime.mixed_precision_dtype",
)
# Where the data lies may change. What is trained on may not: `task.data.difference` compares it. Texts that
# are only evaluated are not compared.
MAY_CHANGE = (
    *("task.validation_data", "task.general_data.input_path", "task.train_data.input_path"),
    "task.init_checkpoint",
)
_STEPS_LOOKED_AT = 10_000  # steps searched for the longest


def check_settings(params, model_dir: str):
    """Raises UserError for settings and folders that are wrong on any device."""
    check_name(model_dir)
    folders.claim(model_dir, folders.RUN, folders.RUNS, folders.ADAPTATION, flag="--model_dir")
    check_remote_paths(params, model_dir)
    Profile(params.trainer.profile_steps, model_dir)  # refuses wrong profile_steps
    for name in ("validation_interval", "checkpoint_interval"):
        if (steps := getattr(params.trainer, name)) < 1:
            raise UserError(f"trainer.{name} is {steps}: expected at least 1 step")
    if params.trainer.patience and not params.task.validation_data.input_path:
        raise UserError("trainer.patience (--patience) counts evaluations, and there are no dev examples")


def check_batch_sizes(params, replicas: int):
    """Raises UserError unless the batches split evenly over the replicas and their micro-batches."""
    micro_batches = params.trainer.accumulation_steps
    batch_size = params.task.train_data.global_batch_size
    if micro_batches < 1 or batch_size < 1 or batch_size % (replicas * micro_batches):
        raise UserError(
            f"batch_size is {batch_size} with {replicas} replicas and accumulation_steps {micro_batches}: "
            f"expected a multiple of {replicas * max(micro_batches, 1)}"
        )
    if params.task.validation_data.input_path and params.task.validation_data.global_batch_size % replicas:
        raise UserError(
            f"dev_batch_size is {params.task.validation_data.global_batch_size} with {replicas} replicas: "
            f"expected a multiple of {replicas}"
        )


def check_memory(params, task: Task, strategy: tf.distribute.Strategy):
    """Warns if a step on CPUs may exceed this machine's memory: the system would kill the run silently.

    Raises UserError if the step needs twice the memory, unless trainer.check_memory is off.
    """
    if not runtime.describe(strategy).partition(" on ")[2].startswith("CPU"):
        return
    steps = min(params.trainer.train_steps, _STEPS_LOOKED_AT)
    batching, config = task.data.batching(training=True), task.xlnet_config
    step_tokens = max(map(batching.tokens_of_step, {*batching.lengths_of_steps(0, steps, multiple=1)}))
    tokens = step_tokens // max(1, params.trainer.accumulation_steps)
    needed = step_gigabytes(config, tokens, params.trainer.recompute)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    if needed <= memory:
        return
    problem = (
        f"a step of {step_tokens:,} tokens needs about {needed:.0f} GB and this machine has {memory:.0f}"
    )
    if needed < 2 * memory or not params.trainer.check_memory:
        logging.warning(
            "%s: the system may kill the run. %s, or begin with a small model (--preset=micro)",
            problem,
            SMALLER_STEP,
        )
        return
    rows, micro_batches = params.task.train_data.global_batch_size, max(1, params.trainer.accumulation_steps)
    most = int(rows // micro_batches * 0.8 * memory / needed)
    smaller = ""
    if most:
        counts = range(micro_batches, rows + 1)
        fitting = (count for count in counts if rows % count == 0 and rows // count <= most)
        smaller = (
            f"--batch_size={most * micro_batches}, or --accumulation_steps={next(fitting)} with this batch, "
            "or "
        )
    raise UserError(
        f"{problem}: the system would kill the run. What fits: {smaller}a small model "
        "(--preset=micro). --params_override=trainer.check_memory=false tries it all the same"
    )


def step_gigabytes(config: XLNetConfig, tokens: int, recompute: Recompute) -> float:
    """Estimates the memory of a micro-batch's activations in float32.

    44 floats a layer and unit of width are measured: Base, 512 tokens, 384 of memory, 0.83 GB a row. Of all
    layers but the one at work, `cheap` keeps what products with weights gave: 13 of them.
    """
    kept = {False: 44, True: 0, "cheap": 13}[recompute]
    return 4 * tokens * (44 + kept * (config.n_layer - 1)) * config.d_model / 1e9


def check_data(params, data: TaskData):
    """Compares the data with their checksums; warns instead if they exceed trainer.check_data_gb."""
    if (size := data.bytes / 1e9) <= params.trainer.check_data_gb:
        data.check()
        return
    logging.warning(
        "the data's %.0f GB are not compared with their checksums before the run: check_data_gb is %g",
        size,
        params.trainer.check_data_gb,
    )


def check_inputs(params, data: TaskData, replicas: int, hosts: int = 1):
    """Reads a batch of each host's training and validation data, so that errors show before training."""
    batchings = [data.batching(True, replicas, params.trainer.accumulation_steps)]
    if params.task.validation_data.input_path:
        batchings.append(data.batching(training=False))
    for batching in batchings:
        for host in range(hosts):
            for _ in batching.dataset(tf.distribute.InputContext(hosts, host, replicas)).take(1):
                pass


def check_remote_paths(params, model_dir: str):
    """Raises UserError if the hosts of a TPU that is reached by name cannot read or write what they must."""
    if params.runtime.distribution_strategy != "tpu" or params.runtime.tpu in (None, "", "local"):
        return
    data = params.task.train_data.input_path, params.task.validation_data.input_path
    local = [path for path in (*data, model_dir) if path and "://" not in path]
    if local:
        raise UserError(
            f"the hosts of the TPU {params.runtime.tpu} read and write by themselves, and do not see "
            f"{', '.join(local)}: expected paths that all machines reach, as gs://BUCKET/..."
        )


def check_resumable(params, task: Task, model_dir: str):
    """Raises UserError if model_dir holds a run (saved or just begun) with other settings that must match.

    Other trainer settings that differ are only logged.
    """
    path = f"{model_dir}/params.yaml"
    saved = newest(model_dir)
    if not tf.io.gfile.exists(path):
        if not saved:
            return
        raise UserError(
            f"{model_dir} holds checkpoints but no params.yaml, which has the settings they were trained "
            "with: put it back, or choose another --model_dir"
        )
    # Settings that the run's version lacked had their defaults.
    defaults = {name: type(getattr(params, name))().as_dict() for name in ("task", "trainer", "runtime")}
    before = flatten(defaults) | flatten(files.read_yaml(path))
    now = flatten(params.as_dict())
    changed = {
        name: f"{name}: {before.get(name)} there, {now.get(name)} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    }
    must_match = (
        line
        for name, line in changed.items()
        if name.startswith(MUST_MATCH_ON_RESUME) and not name.startswith(MAY_CHANGE)
    )
    architecture = _architecture_difference(task.xlnet_config, model_dir)
    different = [f"  {line}" for line in (*must_match, *architecture, *task.data.difference(model_dir))]
    if different:
        begin = f"(--init_checkpoint={model_dir} begins with its weights)"
        if not saved:
            begin = f"or remove {path}: nothing of that run has been saved"
        raise UserError(
            f"{model_dir} holds a run with other settings:\n" + "\n".join(different) + "\nResume with the "
            f"settings of that run, or start a new one with another --model_dir {begin}."
        )
    changed.pop("trainer.summary_interval", None)  # follows steps_per_loop
    if lines := [line for name, line in changed.items() if name.startswith("trainer.")]:
        logging.warning("%s holds a run with other settings, and resumes: %s", model_dir, "; ".join(lines))


def _architecture_difference(config: XLNetConfig, model_dir: str) -> list[str]:
    """Returns how an architecture differs from the run's in model_dir, as files or checkpoints change."""
    path = f"{model_dir}/{CONFIG_FILE}"
    if not tf.io.gfile.exists(path):
        return []
    before, now = XLNetConfig.from_dict(files.read_json(path), path).to_dict(), config.to_dict()
    return [f"architecture's {line}" for line in settings_difference(before, now)]

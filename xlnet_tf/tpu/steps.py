"""The programs that a TPU's core runs: the trainer's own step, and served signatures."""

import copy
import functools
import re
from collections.abc import Callable

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import task_factory

from xlnet_tf.errors import UserError
from xlnet_tf.layers.kernels import device
from xlnet_tf.tpu.lowering import Program, lower
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.runtime import number_type
from xlnet_tf.training.task import Task
from xlnet_tf.training.trainer import Trainer

TOKENS = "tokens"
_TOO_MANY_TOKENS = 1 << 20


def training_step(
    params: cfg.ExperimentConfig,
    gradient_only: bool = False,
    hardware: str = "tpu",
    length: int | None = None,
) -> Program:
    """Lowers one core's whole step of a training: forward, backward, clipping, update, memory, metrics.

    Args:
        params: the experiment; task.train_data has the core's rows and a set, of which only the shapes count.
        gradient_only: leave out update and metrics; the outputs are then the gradients and the next memory.
        hardware: the target, one of layers.kernels.device.HARDWARE.
        length: the length that rows are cut to, or the number of packed rows; None: rows are whole.
    """
    one_row = copy.deepcopy(params.task)  # any set has one
    one_row.train_data.global_batch_size = 1
    with number_type(params.runtime.mixed_precision_dtype), device.assume(hardware):
        task = task_factory.get_task_cls(type(one_row))(one_row)
        rows = params.task.train_data.global_batch_size
        inputs = {
            name: tf.TensorSpec([rows, *spec.shape[1:]], spec.dtype)
            for name, spec in task.data.batching(training=True).dataset().element_spec.items()
        }
        one_row.train_data.global_batch_size = rows
        schedule = params.trainer.optimizer_config
        # Fine-tuning counts its steps from its data; a number in the program is as good as another.
        train_steps = params.trainer.train_steps or schedule.warmup_steps + 1
        trainer = Trainer(
            params,
            task,
            task.build_model(),
            build_optimizer(schedule, train_steps, task.n_layer),
            evaluate=False,
        )
        if length and "packed_start" not in inputs and length > task.example_set.seq_len:
            raise UserError(f"rows of {task.example_set.seq_len} tokens cannot be cut to {length}")
        step = trainer.replica_gradients if gradient_only else trainer.replica_step
        return lower(functools.partial(step, length=length), inputs, _lengths(task))


def _lengths(task: Task) -> dict[str, int]:
    """Returns T and, as the task has them, P and M, or the sequences of a row."""
    if hasattr(task, "train_manifest"):
        data = task.train_manifest
        return {"seq_len": data.seq_len, "num_predict": data.num_predict, "memory_len": task.memory_len}
    return {"seq_len": task.example_set.seq_len, "sequences": task.example_set.sequences}


def served_signature(path: str, rows: int, seq_len: int | None = None) -> Program:
    """Lowers the signature `tokens` of a SavedModel.

    The graph is used as exported. Traced on the exporting machine, it shifts scores by position; a step
    traced for a TPU rotates queries and keys (layers/kernels/position_rotation.py). `path` includes VERSION.
    """
    from xlnet_tf.text.graph import sentencepiece as graph_sentencepiece  # noqa: F401 (operations of the exported graph)

    model = tf.saved_model.load(path)
    if TOKENS not in model.signatures:
        raise UserError(
            f"{path} has the signatures {', '.join(sorted(model.signatures))}: expected one called {TOKENS}, "
            "as xlnet-tf export writes it"
        )
    serve = model.signatures[TOKENS]
    specs = serve.structured_input_signature[1]
    [only] = {spec.shape[1] for spec in specs.values()}  # None: sequences of any length up to the longest
    longest = only or _longest(serve, path)
    seq_len = seq_len or longest
    if seq_len > longest or only and seq_len != only:
        raise UserError(
            f"seq_len is {seq_len}, but {path} was exported with {longest}: expected "
            f"{'no other, as its sequences are all of one length' if only else f'at most {longest}'}. Leave "
            "it out, or export another version"
        )
    return lower(
        # Names of labels are left out: the host makes them of numbers.
        lambda features: {n: v for n, v in serve(**features).items() if v.dtype != tf.string},
        dict.fromkeys(specs, tf.TensorSpec([rows, seq_len], tf.int32)),
        {"seq_len": seq_len},
    )


def _longest(serve: Callable, path: str) -> int:
    """Returns a signature's maximum of tokens, which its error for longer texts names."""
    tokens = tf.ones([1, _TOO_MANY_TOKENS], tf.int32)
    try:
        serve(**dict.fromkeys(serve.structured_input_signature[1], tokens))
    except tf.errors.InvalidArgumentError as error:
        if found := re.search(r"has more than (\d+) tokens", error.message):
            return int(found[1])
    raise UserError(
        f"{path} does not say how many tokens it takes: expected the signature {TOKENS} to refuse "
        f"{_TOO_MANY_TOKENS}, as xlnet-tf export writes it; export the model again"
    )

"""Compiles Model Garden's training step for a TPU, as `xlnet-tf tpu-compile` does ours: no TPU is needed.

    python -m benchmarks.tpu_step --preset=base --batch_per_core=4 --topology=v3,v5e

The step is that of Model Garden's XLNetPretrainer with Keras' AdamW, in float32 and without memory: compare
it with `xlnet-tf tpu-compile --memory_len=0`.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from benchmarks import harness
from benchmarks.batches import make_batch, model_garden_batch
from benchmarks.peers import keras_adamw, model_garden_losses, model_garden_pretrainer
from xlnet_tf import errors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option

_TINY = {"batch_size": 2, "seq_len": 32, "num_predict": 5}  # of the batch that creates the variables


def model_garden_step(
    config: XLNetConfig, rows: int, seq_len: int, num_predict: int, dropout: float, gradient_only: bool
) -> Any:
    """Lowers Model Garden's training step for an even number of rows; returns a lowering.Program."""
    import tensorflow as tf

    from xlnet_tf.layers.kernels import device
    from xlnet_tf.tpu.lowering import lower

    model = model_garden_pretrainer(config, model_garden_batch(make_batch(config, **_TINY)), dropout, True)
    variables = model.trainable_variables
    batch = model_garden_batch(make_batch(config, rows, seq_len, num_predict))
    optimizer = keras_adamw()

    def step(features):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model_garden_losses(model, features))
        pairs = zip(tape.gradient(loss, variables), variables)
        pairs = [(tf.convert_to_tensor(gradient), v) for gradient, v in pairs if gradient is not None]
        if gradient_only:
            return loss, [gradient for gradient, _ in pairs]
        optimizer.apply_gradients(pairs)
        return loss

    if not gradient_only:
        optimizer.build(variables)
    with device.assume("tpu"):
        return lower(
            step,
            {name: tf.TensorSpec(v.shape, v.dtype) for name, v in batch.items()},
            {"seq_len": seq_len, "num_predict": num_predict, "memory_len": 0},
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuStepOptions(harness.SegmentOptions, harness.ModelOptions):
    """What is compiled for which TPUs."""

    topology: Sequence[str] = option("TPUs to compile for, as of tpu-compile", ("v3",))
    batch_per_core: int = option("rows of a core's batch, even", 4, least=2)
    find_max_batch: bool = option("search the largest batch per core", False)
    dropout: float = option("rate of all dropouts", 0.0, least=0, most=1)
    gradient_only: bool = option("leave out the update: forward and backward pass alone", False)
    memory_only: bool = option("plan the memory and make no code", False)


def main(_: Sequence[str]) -> None:
    from run_scripts.tpu_compile.plan import compile_rows
    from xlnet_tf.tpu import compilation, report, topologies

    options = from_flags(TpuStepOptions)
    if options.batch_per_core % 2:
        raise UserError(f"--batch_per_core is {options.batch_per_core}: Model Garden needs an even number")

    @functools.cache
    def program(rows: int):
        sizes = (rows, options.seq_len, options.targets)
        return model_garden_step(options.config, *sizes, options.dropout, options.gradient_only)

    batches = []
    for topology in map(topologies.find, options.topology):

        def outcome(rows: int, topology=topology):
            return compilation.compile_program(program(rows).hlo, topology, options.memory_only)

        batches += compile_rows(outcome, topology, options.batch_per_core, options.find_max_batch, 2)
    print(report.table(batches, program(options.batch_per_core).loops_with_products()))


if __name__ == "__main__":
    define_flags(TpuStepOptions)
    errors.run(main)

"""Compiles Model Garden's training step for a TPU, as `xlnet-tf tpu-compile` does ours: no TPU is needed.

    python -m benchmarks.tpu_step --preset=base --batch_per_core=4 --topology=v3,v5e

The step is that of Model Garden's XLNetPretrainer with Keras' AdamW, in float32 and without memory: compare
it with `xlnet-tf tpu-compile --memory_len=0`.
"""

import functools
from collections.abc import Sequence
from typing import Any

from absl import flags

from benchmarks import harness
from benchmarks.batches import make_batch, model_garden_batch
from benchmarks.peers import keras_adamw, model_garden_losses, model_garden_pretrainer
from xlnet_tf import errors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.records.spans import default_num_predict

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


def main(_: Sequence[str]) -> None:
    from xlnet_tf.tpu import compilation, report, search, topologies

    values = flags.FLAGS
    if values.batch_per_core % 2:
        raise UserError(f"--batch_per_core is {values.batch_per_core}: Model Garden needs an even number")
    config, num_predict = harness.config_of_flags(), values.num_predict or default_num_predict(values.seq_len)

    @functools.cache
    def program(rows: int):
        sizes = (rows, values.seq_len, num_predict)
        return model_garden_step(config, *sizes, values.dropout, values.gradient_only)

    batches = []
    for topology in map(topologies.find, values.topology):

        def outcome(rows: int, topology=topology):
            return compilation.compile_program(program(rows).hlo, topology, values.memory_only)

        if values.find_max_batch:
            largest, tried = search.largest_batch(outcome, topology.hbm_bytes, values.batch_per_core, 2)
        else:
            largest, tried = None, {values.batch_per_core: outcome(values.batch_per_core)}
        batches += [
            report.CompiledBatch(topology, rows, tried[rows], rows == largest) for rows in sorted(tried)
        ]
    print(report.table(batches, program(values.batch_per_core).loops_with_products()))


if __name__ == "__main__":
    harness.define_model_flags()
    flags.DEFINE_list("topology", ["v3"], "TPUs to compile for, as of tpu-compile")
    flags.DEFINE_integer("batch_per_core", 4, "rows of a core's batch, even", lower_bound=2)
    flags.DEFINE_bool("find_max_batch", False, "search the largest batch per core")
    flags.DEFINE_integer("seq_len", 512, "tokens of a segment", lower_bound=7)
    flags.DEFINE_integer("num_predict", None, "targets of a segment. Default: seq_len / 6", lower_bound=1)
    flags.DEFINE_float("dropout", 0.0, "rate of all dropouts", lower_bound=0, upper_bound=1)
    flags.DEFINE_bool("gradient_only", False, "leave out the update: forward and backward pass alone")
    flags.DEFINE_bool("memory_only", False, "plan the memory and make no code")
    errors.run(main)

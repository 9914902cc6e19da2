"""Model Garden's training step, lowered as the project's own is, to compare what a TPU makes of both."""

import tensorflow as tf

from run_scripts.benchmark.batches import make_batch, model_garden_batch
from run_scripts.benchmark.peers import keras_adamw, model_garden_losses, model_garden_pretrainer
from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers.kernels import device
from xlnet_tf.records.spans import default_num_predict
from xlnet_tf.tpu.lowering import Program, lower

_TINY = {"batch_size": 2, "seq_len": 32, "num_predict": 5}  # of the batch that creates the variables


def model_garden_step(
    config: XLNetConfig,
    rows: int,
    seq_len: int,
    num_predict: int | None,
    dropout: float,
    gradient_only: bool,
) -> Program:
    """Lowers a training step of Model Garden's XLNetPretrainer with Keras' AdamW, in float32, without memory.

    Args:
        rows: B, even: the second half is read backward.
        num_predict: P; None: the default for T.
    """
    model = model_garden_pretrainer(config, model_garden_batch(make_batch(config, **_TINY)), dropout, True)
    variables = model.trainable_variables
    num_predict = num_predict or default_num_predict(seq_len)
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

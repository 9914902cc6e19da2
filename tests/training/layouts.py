"""Trains on several layouts of devices and micro-batches; run as a process of its own, which sets up devices.

    python -m tests.training.layouts FOLDER

writes FOLDER/NAME.npz for each run of RUNS: losses [steps], and after the last step the weights, the
optimizer's slots and the memory.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf

from tests.training.toy_records import make_records
from xlnet_tf.tasks import pretraining
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.trainer import Trainer

STEPS, SAVED = 20, 12
# name: (devices, accumulation steps, dropout, whether to go on from the run "saved")
RUNS = {
    "one": (1, 1, 0.0, False),
    "two": (2, 1, 0.0, False),
    "two_accumulated": (2, 2, 0.0, False),
    "saved": (2, 1, 0.1, False),
    "resumed": (2, 1, 0.1, True),
    "resumed_elsewhere": (1, 2, 0.1, True),
}


def build_trainer(folder, strategy, accumulation_steps, dropout, jit_compile=False) -> Trainer:
    params = pretraining.pretraining_experiment()
    params.override(
        {
            "task": {
                "train_data": {"input_path": str(folder / "records"), "global_batch_size": 8},
                "model": {"n_layer": 2, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32,
                          "memory_len": 12, "dropout": dropout, "attention_dropout": dropout},
            },
            "trainer": {"accumulation_steps": accumulation_steps, "train_steps": STEPS,
                        "optimizer_config": {"learning_rate": 0.01}},
            "runtime": {"enable_xla": jit_compile},
        }
    )  # fmt: skip
    task = pretraining.PretrainingTask(params.task)
    with strategy.scope():
        tf.random.set_seed(1)
        optimizer = build_optimizer(params.trainer.optimizer_config, STEPS, task.n_layer)
        return Trainer(params, task, task.build_model(), optimizer, evaluate=False)


def train(trainer: Trainer, steps: int) -> list[float]:
    with trainer.strategy.scope():
        return [float(trainer.train(tf.constant(1))["training_loss"]) for _ in range(steps)]


def state(trainer: Trainer) -> dict[str, np.ndarray]:
    values = {f"weight/{v.name}": v.numpy() for v in trainer.model.trainable_variables}
    values |= {f"slot/{i}": v.numpy() for i, v in enumerate(trainer.optimizer.variables)}
    memory = trainer.checkpoint.memory._serialize_to_tensors()
    return values | {f"memory/{name}": value.numpy() for name, value in memory.items()}


def main(folder: pathlib.Path):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )  # it takes longer than the runs
    make_records(folder / "records")
    # One MirroredStrategy for all: the collectives of two would be taken for each other's.
    strategies = {
        1: tf.distribute.OneDeviceStrategy("CPU:0"),
        2: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    }
    initial, checkpoint = None, str(folder / "checkpoint")
    for name, (devices, accumulation_steps, dropout, resume) in RUNS.items():
        trainer = build_trainer(folder, strategies[devices], accumulation_steps, dropout)
        if initial is None:
            initial = [v.numpy() for v in trainer.model.trainable_variables]
        for variable, value in zip(trainer.model.trainable_variables, initial):
            variable.assign(value)
        losses = []
        if resume:
            trainer.checkpoint.read(checkpoint).assert_consumed()
        else:
            losses = train(trainer, SAVED)
            if name == "saved":
                trainer.checkpoint.write(checkpoint)
        losses += train(trainer, STEPS - int(trainer.global_step.numpy()))
        np.savez(folder / f"{name}.npz", losses=losses, **state(trainer))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

"""Trains on several layouts of devices and micro-batches; run as a process of its own, which sets up devices.

    python -m tests.helpers.training.layouts FOLDER NAME...

writes FOLDER/NAME.npz for each of these runs (see RUNS): losses and gradient norms [steps], the gradients of
the first step, and after the last one the weights, the optimizer's slots and the memory.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf
import tf_keras

from tests.helpers.training import toy
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.trainer import Trainer

STEPS, SAVED = 30, 12
# name: (devices, accumulation steps, dropout, whether to resume the run "saved")
RUNS = {
    "one": (1, 1, 0.0, False),
    "two": (2, 1, 0.0, False),
    "two_accumulated": (2, 2, 0.0, False),
    "saved": (2, 1, 0.1, False),
    "resumed_elsewhere": (1, 2, 0.1, True),
    "four": (4, 1, 0.0, False),
    "four_accumulated": (4, 2, 0.0, False),
    "eight": (8, 1, 0.0, False),
}


def build_trainer(folder, strategy, overrides, evaluate=False) -> Trainer:
    """Builds a trainer of a very small model on FOLDER/records; `overrides` change its settings."""
    params = pretraining.pretraining_experiment()
    params.override(toy.settings(folder))
    params.override({"trainer": {"train_steps": STEPS}})
    params.override(overrides)
    task = pretraining.PretrainingTask(params.task)
    with strategy.scope():
        tf_keras.utils.set_random_seed(1)
        optimizer = build_optimizer(params.trainer.optimizer_config, params.trainer.train_steps, task.n_layer)
        return Trainer(params, task, task.build_model(), optimizer, evaluate=evaluate)


def train(trainer: Trainer, steps: int) -> list[float]:
    """Returns the loss of each step."""
    return [loss for loss, _ in train_and_tell(trainer, steps)]


def train_and_tell(trainer: Trainer, steps: int) -> list[tuple[float, float]]:
    """Returns the loss of each step and the norm of its gradient."""
    with trainer.strategy.scope():
        logs = [trainer.train(tf.constant(1)) for _ in range(steps)]
    return [(float(log["training_loss"]), float(log["gradient_norm"])) for log in logs]


def first_gradients(trainer: Trainer, norm: float) -> dict[str, np.ndarray]:
    """Returns the gradients of the first step, right after it.

    They are in the first moments, clipped by their norm: to take them from there compiles no second graph.
    """
    optimizer = trainer.optimizer
    clipped = max(norm / optimizer.global_clipnorm, 1)
    return {
        f"gradient/{v.name}": m.numpy() * clipped / (1 - optimizer.beta_1)
        for v, m in zip(trainer.model.trainable_variables, optimizer._momentums)
    }


def state(trainer: Trainer) -> dict[str, np.ndarray]:
    values = {f"weight/{v.name}": v.numpy() for v in trainer.model.trainable_variables}
    values |= {f"slot/{i}": v.numpy() for i, v in enumerate(trainer.optimizer.variables)}
    memory = trainer.checkpoint.memory._gather_saveables_for_checkpoint()
    for (name, rows), axis in zip(memory.items(), (1, 0)):
        values[f"memory/{name}"] = np.concatenate([spec.tensor.numpy() for spec in rows("").specs], axis)
    return values


def main(folder: pathlib.Path, names: list[str]):
    most = max(RUNS[name][0] for name in names)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * most
    )
    # Optimizing the graphs takes longer than running them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    toy.make_records(folder / "records")
    strategies = {1: tf.distribute.OneDeviceStrategy("CPU:0")}
    if most > 1:  # one for all: the collectives of two would be taken for each other's
        strategies[most] = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(most)])
    checkpoint = str(folder / "checkpoint")
    for name in names:
        devices, accumulation_steps, dropout, resume = RUNS[name]
        model = {"dropout": dropout, "attention_dropout": dropout}
        overrides = {"task": {"model": model}, "trainer": {"accumulation_steps": accumulation_steps}}
        trainer = build_trainer(folder, strategies[devices], overrides)
        told, gradients = [], {}
        if resume:
            trainer.checkpoint.read(checkpoint).assert_consumed()
            assert not trainer.resume_notices()  # two micro-batches, or one on each of two devices
        else:
            told = train_and_tell(trainer, 1)
            gradients = first_gradients(trainer, told[0][1])
            told += train_and_tell(trainer, SAVED - 1)
            if name == "saved":
                trainer.checkpoint.write(checkpoint)
        told += train_and_tell(trainer, STEPS - int(trainer.global_step.numpy()))
        losses, norms = zip(*told)
        np.savez(folder / f"{name}.npz", losses=losses, norms=norms, **gradients, **state(trainer))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])

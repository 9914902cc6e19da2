"""One of several processes that train a very small model together; see test_hosts.py.

    TF_CONFIG=... python -m tests.helpers.training.worker FOLDER MODEL_DIR TASK [SIGNAL STEP]

trains on FOLDER/records in MODEL_DIR; TASK is pretraining, accumulated, finetuning
or packed. With SIGNAL
(SIGKILL or SIGTERM), the process sends it to itself after STEP steps.
"""

import os
import pathlib
import signal
import sys

import tensorflow as tf

from tests.helpers.training import toy, toy_finetuning
from xlnet_tf import errors
from xlnet_tf.tasks import seeds
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training import runtime
from xlnet_tf.training.progress import Progress

# Changes to the settings, to tell each of 30 steps, of two micro-batches on each replica.
ACCUMULATED = {
    "train_steps": 30,
    "steps_per_loop": 1,
    "checkpoint_interval": 30,
    "validation_interval": 30,
    "accumulation_steps": 2,
}


def settings(folder, strategy: str = "one_device", **trainer):
    """Returns the settings of 12 steps on FOLDER/records, which saves and evaluates after each four."""
    params = pretraining.pretraining_experiment()
    params.override(toy.settings(folder))
    params.override(
        {
            "task": {"validation_data": {"input_path": str(folder / "dev")}, "model": {"n_layer": 1}},
            "trainer": {
                "train_steps": 12,
                "steps_per_loop": 2,
                "checkpoint_interval": 4,
                "validation_interval": 4,
                **trainer,
            },
            "runtime": {"distribution_strategy": strategy},
        }
    )
    return params


def finetune(
    folder, model_dir, strategy: str, batching: str = "length", devices: int = 0
) -> dict[str, float]:
    """Fine-tunes for three epochs on FOLDER/records; returns the last metrics of FOLDER/dev.

    `devices` are the first ones of four that the process has; 0: what the strategy takes.
    """
    lengths = [8, toy_finetuning.T] if batching == "length" else []
    params = toy_finetuning.experiment()
    params.override(
        {
            "task": {
                "batching": batching,
                "train_data": {"input_path": str(folder / "records"), "lengths": lengths},
                "validation_data": {"input_path": str(folder / "dev")},
                "model": {"dropout": 0.0, "attention_dropout": 0.0},
                "epochs": 3.0,
            },
            "runtime": {"distribution_strategy": strategy, "virtual_devices": 4 if devices else 0},
        }
    )
    chosen = runtime.prepare(params.runtime)
    if devices:
        chosen = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(devices)])
    (result,) = seeds.finetune_seeds(params, toy_finetuning.ToyTask, chosen, str(model_dir))
    return result.last


def end_itself(name: str, step: int):
    """Lets the process send itself a signal when it reports this step."""
    report = Progress.train

    def report_and_end(progress, logs):
        report(progress, logs)
        if int(progress._step.numpy()) == step:
            os.kill(os.getpid(), getattr(signal, name))

    Progress.train = report_and_end


def main(argv):
    folder, model_dir, task, *ending = argv
    if ending:
        end_itself(ending[0], int(ending[1]))
    # Optimizing the graphs takes longer than running them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = "multi_worker_mirrored"
    if task in ("finetuning", "packed"):
        batching = "length" if task == "finetuning" else task
        finetune(pathlib.Path(folder), model_dir, strategy, batching)
    else:
        changes = ACCUMULATED if task == "accumulated" else {}
        pretraining.pretrain(settings(pathlib.Path(folder), strategy, **changes), model_dir)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.argv[1:] = []
    errors.run(lambda _: main(arguments))

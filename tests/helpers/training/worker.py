"""One of several processes that train a very small model together; see test_hosts.py.

    TF_CONFIG=... python -m tests.helpers.training.worker FOLDER MODEL_DIR TASK [SIGNAL STEP]

trains on FOLDER/records in MODEL_DIR; TASK is pretraining, accumulated, finetuning or packed. With SIGNAL
(SIGKILL or SIGTERM), the process sends it to itself after STEP steps.
"""

import contextlib
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import tensorflow as tf

from tests.helpers.training import toy, toy_finetuning
from xlnet_tf import errors
from xlnet_tf.tasks import seeds
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training import runtime
from xlnet_tf.training.progress import Progress

# Changes to the settings, to tell each of 30 steps, of two micro-batches on each replica.
ACCUMULATED = dict.fromkeys(("train_steps", "checkpoint_interval", "validation_interval"), 30)
ACCUMULATED |= {"steps_per_loop": 1, "accumulation_steps": 2}


def settings(folder, strategy: str = "one_device", **changes):
    """Returns the settings of 12 steps on FOLDER/records, which saves and evaluates after each four."""
    params = pretraining.pretraining_experiment()
    task = {"validation_data": {"input_path": str(folder / "dev")}, "model": {"n_layer": 1}}
    trainer = {"train_steps": 12, "steps_per_loop": 2, "checkpoint_interval": 4, "validation_interval": 4}
    params.override(toy.settings(folder))
    params.override({"task": task, "trainer": {**trainer, **changes}})
    params.override({"runtime": {"distribution_strategy": strategy}})
    return params


def finetune(
    folder, model_dir, strategy: str, batching: str = "length", devices: int = 0
) -> dict[str, float]:
    """Fine-tunes for three epochs on FOLDER/records; returns the last metrics of FOLDER/dev.

    `devices` are the first ones of four that the process has; 0: what the strategy takes.
    """
    params = toy_finetuning.experiment()
    lengths = [8, toy_finetuning.T] if batching == "length" else []
    data = {
        "train_data": {"input_path": str(folder / "records"), "lengths": lengths},
        "validation_data": {"input_path": str(folder / "dev")},
    }
    task = {"batching": batching, "model": {"dropout": 0.0, "attention_dropout": 0.0}, "epochs": 3.0}
    runs_on = {"distribution_strategy": strategy, "virtual_devices": 4 if devices else 0}
    params.override({"task": {**data, **task}, "runtime": runs_on})
    chosen = runtime.prepare(params.runtime)
    if devices:
        chosen = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(devices)])
    (result,) = seeds.finetune_seeds(params, toy_finetuning.ToyTask, chosen, str(model_dir))
    return result.last


@contextlib.contextmanager
def after_reports(act: Callable[[int], object]) -> Iterator[None]:
    """Calls `act` with the step after each report of a training."""
    report = Progress.train

    def report_and_act(progress, logs):
        report(progress, logs)
        act(int(progress._step.numpy()))

    with mock.patch.object(Progress, "train", report_and_act):
        yield


def ends_itself(number: int, step: int) -> Callable[[int], object]:
    """Returns what sends this process a signal at a step."""
    return lambda at: os.kill(os.getpid(), number) if at == step else None


def main(argv):
    folder, model_dir, task, *ending = argv
    # Optimizing the graphs takes longer than running them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    folder, strategy = pathlib.Path(folder), "multi_worker_mirrored"
    number, step = ending or ("SIGTERM", -1)
    with after_reports(ends_itself(getattr(signal, number), int(step))):
        if task in ("finetuning", "packed"):
            finetune(folder, model_dir, strategy, "length" if task == "finetuning" else task)
        else:
            changes = ACCUMULATED if task == "accumulated" else {}
            pretraining.pretrain(settings(folder, strategy, **changes), model_dir)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.argv[1:] = []
    errors.run(lambda _: main(arguments))

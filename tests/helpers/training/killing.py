"""Runs a training once undisturbed and once killed again and again; see test_killing.py.

    python -m tests.helpers.training.killing FOLDER LAYOUT KILLS

leaves the runs FOLDER/undisturbed and FOLDER/killed-0, and prints a line for each kill. A run that comes to
its end before all kills are done is followed by another, killed-1 and so on. All runs are forked from this
process, which has imported everything and computed nothing: a start takes what building the graph takes.
"""

import itertools
import os
import pathlib
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable

import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.training import toy, toy_finetuning
from tests.helpers.training.worker import settings
from xlnet_tf.errors import Interrupted
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.text.training import train_tokenizer
from xlnet_tf.training import runtime

# What each layout changes; those of FINETUNING are another task.
FINETUNING = ("finetuning", "packed")
LAYOUTS = {
    "one": {},
    "two": {"runtime": {"distribution_strategy": "mirrored", "virtual_devices": 2}},
    "accumulated": {"trainer": {"accumulation_steps": 2}},
    "finetuning": {"task": {"train_data": {"lengths": [8, toy_finetuning.T]}}},  # steps of both
    "packed": {"task": {"batching": "packed"}, "trainer": {"accumulation_steps": 2}},
}
COMMON = {
    "task": {"model": {"dropout": 0.1, "attention_dropout": 0.1}},
    "trainer": {"train_steps": 16, "steps_per_loop": 1, "checkpoint_interval": 2, "validation_interval": 8},
    "runtime": {"deterministic": True},
}


def make_data(folder: pathlib.Path, layout: str):
    if layout in FINETUNING:
        tokenizer = train_tokenizer(invent_texts(600), 90)
        toy_finetuning.make_examples(folder / "records", tokenizer, 64)
        toy_finetuning.make_examples(folder / "dev", tokenizer, 21, seed=1)
    else:
        toy.make_records(folder / "records")
        toy.make_records(folder / "dev", segments=((7, 5), (4, 3)), seed=1)


def train(folder: pathlib.Path, layout: str, model_dir: pathlib.Path):
    """Trains to the end, or on from where a run was killed."""
    # Optimizing the graphs takes longer than running them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    params = toy_finetuning.experiment() if layout in FINETUNING else settings(folder)
    params.task.train_data.input_path = str(folder / "records")
    params.task.validation_data.input_path = str(folder / "dev")
    for changes in (COMMON, LAYOUTS[layout]):
        params.override(changes)
    if layout in FINETUNING:
        finetune(params, toy_finetuning.ToyTask, runtime.prepare(params.runtime), str(model_dir))
    else:
        pretraining.pretrain(params, str(model_dir))


def start(folder: pathlib.Path, train: Callable[..., None], *arguments) -> int:
    """Forks a process that trains, with its output in FOLDER/log; returns its id."""
    if child := os.fork():
        return child
    status = 1
    try:
        log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        train(*arguments)
        status = 0
    except Interrupted as error:
        print(f"INTERRUPTED: {error}", file=sys.stderr)
        status = error.EXIT_STATUS
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(child: int) -> bool:
    """Returns whether a process has ended by itself; it must have ended well."""
    done, status = os.waitpid(child, os.WNOHANG)
    if done and status:
        raise RuntimeError(f"a run failed with {status}: see the log")
    return bool(done)


def checkpoint_files(model_dir: pathlib.Path) -> set[str]:
    return {path.name for path in model_dir.glob("ckpt-*")}


def kill(child: int, model_dir: pathlib.Path, rng: random.Random, while_saving: bool, longest: float) -> bool:
    """Kills a run after a random time, or as soon as it writes a checkpoint; False if it ended before."""
    before = checkpoint_files(model_dir)
    deadline = time.monotonic() + (3600 if while_saving else rng.uniform(0, longest))
    while time.monotonic() < deadline:
        if ended(child):
            return False
        if while_saving and checkpoint_files(model_dir) - before:
            time.sleep(rng.choice([0, 0, 0.001, 0.003, 0.01]))
            break
        time.sleep(0.0005 if while_saving else 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main(folder: pathlib.Path, layout: str, kills: int):
    make_data(folder, layout)
    begun = time.monotonic()
    child = start(folder, train, folder, layout, folder / "undisturbed")
    while not ended(child):
        time.sleep(0.02)
    longest = time.monotonic() - begun
    rng = random.Random(layout)
    done = 0
    for run in itertools.count():
        model_dir = folder / f"killed-{run}"
        child = start(folder, train, folder, layout, model_dir)
        while done < kills and kill(child, model_dir, rng, done % 2 == 0, longest):
            moment = "while saving" if done % 2 == 0 else "anywhere"
            print(model_dir.name, moment, sorted(checkpoint_files(model_dir)), flush=True)
            done += 1
            child = start(folder, train, folder, layout, model_dir)
        if done == kills:
            break
    while not ended(child):
        time.sleep(0.02)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

"""The checkpoints of a run, MODEL_DIR/ckpt-STEP, and its losses, MODEL_DIR/history.jsonl."""

import json
import os
import re
from typing import NamedTuple

import tensorflow as tf

from xlnet_tf import files, folders
from xlnet_tf.checkpoints.checkpoint import Checkpoint
from xlnet_tf.checkpoints.model_card import BEST, METRICS_FILE
from xlnet_tf.errors import UserError
from xlnet_tf.hub.locating import WEIGHTS

NAME = "ckpt"
HISTORY = "history.jsonl"
KINDS = ("train", "dev")
_ITERATIONS = "optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE"


class OptimizerState(NamedTuple):
    """The moments of an optimizer: the run's checkpoint that has them, and updates that they have seen."""

    path: str
    updates: int


def optimizer_state(checkpoint: Checkpoint) -> OptimizerState | None:
    """Returns the optimizer's state that belongs to weights; None if it was not kept.

    Best weights have that of the run's checkpoint of the same step, if it still exists.
    """
    path, folder = checkpoint.path, os.path.dirname(checkpoint.path)
    if os.path.basename(folder) == BEST and tf.io.gfile.exists(f"{folder}/{METRICS_FILE}"):
        step = files.read_json(f"{folder}/{METRICS_FILE}").get("step")
        path = f"{os.path.dirname(folder)}/{NAME}-{step}"
    elif _ITERATIONS not in checkpoint.stripped:
        return None
    if path not in newest_first(os.path.dirname(path)):
        return None
    return OptimizerState(path, int(tf.train.load_variable(path, _ITERATIONS)))


def check_name(path: str) -> None:
    """Raises UserError for a path that TensorFlow would take for a pattern."""
    if found := [character for character in "*?[\\" if character in path]:
        raise UserError(
            f"{path} has {' and '.join(found)} in its name: TensorFlow takes that as a pattern, and reads no "
            "checkpoint there. Give the folder another name"
        )


def newest(model_dir: str) -> str | None:
    """Returns the path of a run's newest checkpoint, whole or not; None if there is none."""
    return next(iter(newest_first(model_dir)), None)


def newest_first(model_dir: str) -> list[str]:
    """Returns the paths of all checkpoints of a run, by falling step."""
    paths = files.beginning_with(os.path.join(model_dir, f"{NAME}-"))
    matches = [match for path in paths if (match := re.fullmatch(rf"(.*{NAME}-([0-9]+))\.index", path))]
    return [match[1] for match in sorted(matches, key=lambda m: -int(m[2]))]


def runs_below(folder: str) -> str:
    """Returns a hint about the runs in a folder, of several seeds or a sweep; "" if there are none."""
    kinds = (folders.RUN, folders.RUNS)
    below = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder))
    names = [name for name in below if name != BEST and folders.look(f"{folder}/{name}")[0] in kinds]
    if not names:
        return ""
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{folder} holds runs ({listed}), and is not one itself: give one of them, as {folder}/{names[0]}"


def kept(model_dir: str) -> list[str]:
    """Returns the weights that a run has kept: its checkpoints by step, then the folder of its best weights.

    The last of them are those that the run's folder stands for. Other folders have none.
    """
    paths = newest_first(model_dir)[::-1]
    if tf.io.gfile.exists(f"{model_dir}/{BEST}/{METRICS_FILE}"):  # written last
        paths.append(f"{model_dir}/{BEST}")
    if paths and (others := [name for name in WEIGHTS if tf.io.gfile.exists(f"{model_dir}/{name}")]):
        raise UserError(
            f"{model_dir} holds a run and other weights ({others[0]}), and only one of them can be what the "
            f"folder stands for: move {others[0]}, with copies of the files next to it, to a folder of its "
            f"own, or give {paths[-1]}"
        )
    return paths


def read_history(path: str) -> list[dict]:
    """Reads a `history.jsonl`, without a line that a killed run left unfinished: step, kind and metrics."""
    lines = []
    for number, text in enumerate(files.read_text(path).split("\n")[:-1], 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not (isinstance(line, dict) and isinstance(line.get("step"), int) and line.get("kind") in KINDS):
            raise UserError(
                f"{path}, line {number} is {text[:80]!r}: expected an object with a step and a kind, "
                f"{' or '.join(KINDS)}. Remove the line, or the file"
            )
        lines.append(line)
    return lines

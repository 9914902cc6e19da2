"""What evaluations decide: which weights are the best, and whether a run ends before its last step."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging

from xlnet_tf import files
from xlnet_tf.checkpoints.formats import write_model
from xlnet_tf.checkpoints.model_card import BEST, CARD_FILE, METRICS_FILE, PARAMS_FILE, ModelCard
from xlnet_tf.checkpoints.of_runs import HISTORY, read_history
from xlnet_tf.training.task import Task

HOURS_FILE = "hours.json"
# Next to the metrics of the best weights: the dev set, and the step at which it replaced another.
_DEV_SET, _DEV_SET_SINCE = "dev_set", "dev_set_since"


class HoursUsed(Exception):
    """A run has used up its training hours."""


class Hours:
    """Counts the hours that a run has trained, over all its starts, and ends it after `most` (0: no limit).

    Waiting for a machine and the time before the first step do not count. If `write` (the chief's alone
    should), the hours are written each minute, so at most one minute is lost if the process is killed.
    """

    def __init__(self, model_dir: str, most: float, write: bool, clock: Any = time):
        self._path, self._most, self._write, self._clock = f"{model_dir}/{HOURS_FILE}", most, write, clock
        self._before = files.read_json(self._path)["hours"] if tf.io.gfile.exists(self._path) else 0.0
        self._begun = self._written = clock.monotonic()

    def are_used(self, at_end: bool = False) -> bool:
        """Counts the time until now; returns whether the run should end."""
        now = self._clock.monotonic()
        hours = self._before + (now - self._begun) / 3600
        is_used = bool(self._most) and hours >= self._most
        if self._write and (at_end or is_used or now - self._written >= 60):
            files.write_json(self._path, {"hours": hours})
            self._written = now
        return is_used

    def reason(self, step: int) -> str:
        return (
            f"the run has trained for {self._most:g} h, its --max_hours: it ends at step {step:,} with a "
            "checkpoint. A larger value resumes it"
        )


class Patience:
    """Counts the evaluations since the best one; a resumed run counts like one that was never stopped.

    Only evaluations at multiples of the interval count, as a run also evaluates where it resumes (at `step`).
    Evaluations on an earlier dev set do not count if the run has best weights, which show when it changed.
    The run should end after `most` evaluations without a better one; 0: never.
    """

    def __init__(self, task: Task, model_dir: str, step: int, interval: int, most: int):
        self._task, self._interval, self._most = task, interval, most
        self._best, self._since = -math.inf, 0
        path = f"{model_dir}/{HISTORY}"
        if most and tf.io.gfile.exists(path):
            best = read_metrics(f"{model_dir}/{BEST}")
            begin = best.get(_DEV_SET_SINCE, 0) if _is_of(best, task) else step
            for line in read_history(path):
                if line["kind"] == "dev" and begin <= line["step"] < step:
                    self.lost(line, line["step"])

    def lost(self, metrics, step: int) -> bool:
        """Records an evaluation; returns whether the run should end now."""
        if not self._most or not step or step % self._interval:
            return False
        value = self._task.dev_score(metrics)
        if value > self._best:
            self._best, self._since = value, 0
        else:  # also where it is NaN
            self._since += 1
        return self._since >= self._most

    def reason(self, step: int) -> str:
        return f"ended at step {step}: {self._since} evaluations were not better than the best before them"


def first_evaluation(model_dir: str) -> dict[str, Any]:
    """Returns the first evaluation in a run's history, which was before its first step."""
    return next(line for line in read_history(f"{model_dir}/{HISTORY}") if line["kind"] == "dev")


def keep_best(
    task: Task, model: tf_keras.Model, metrics: Mapping[str, float], step: int, model_dir: str
) -> None:
    """Keeps the weights of the best evaluation so far, in a folder that every tool can read.

    At step 0 it removes what an earlier start left.
    """
    folder = f"{model_dir}/{BEST}"
    if step == 0:
        if tf.io.gfile.exists(folder):  # left by a run that stopped before its first checkpoint
            tf.io.gfile.rmtree(folder)
        return
    best, score, before = read_metrics(folder), task.dev_score(metrics), -math.inf
    of_set = {_DEV_SET: task.data.dev_set()}
    if _is_of(best, task):
        of_set |= {name: best[name] for name in (_DEV_SET_SINCE,) if name in best}
    else:
        logging.warning(
            "%s has the weights that were best on other dev examples: they are removed, and from now on the "
            "best on the present dev examples are kept there",
            folder,
        )
        tf.io.gfile.rmtree(folder)
        best = {}
        of_set[_DEV_SET_SINCE] = step
    with contextlib.suppress(KeyError):  # there is none, or it has other metrics
        before = task.dev_score(best)
    if math.isnan(score) or score <= before:
        return
    if best:  # first the metrics, so that a killed process leaves no wrong ones
        tf.io.gfile.remove(f"{folder}/{METRICS_FILE}")
    tf.io.gfile.makedirs(folder)
    task.save_assets(folder)
    files.copy(f"{model_dir}/{PARAMS_FILE}", f"{folder}/{PARAMS_FILE}")
    values = {"step": step, **of_set, **metrics}
    card = ModelCard.read(folder, {CARD_FILE: None, METRICS_FILE: values})
    write_model(model, folder, card=card)
    files.write(f"{folder}/{METRICS_FILE}", json.dumps(values, indent=1) + "\n")
    card.write(model_dir)


def read_metrics(folder: str) -> dict[str, Any]:
    """Returns the metrics and step of a folder of best weights; empty if there is none."""
    path = f"{folder}/{METRICS_FILE}"
    return files.read_json(path) if tf.io.gfile.exists(path) else {}


def _is_of(best: Mapping[str, Any], task: Task) -> bool:
    """Returns whether the best weights are from the present dev set; true if an old version wrote them."""
    return best.get(_DEV_SET, task.data.dev_set()) == task.data.dev_set()

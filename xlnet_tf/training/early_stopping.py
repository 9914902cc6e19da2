"""What evaluations decide: which weights are the best, and whether a run ends before its last step."""

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging

from xlnet_tf import files
from xlnet_tf.checkpoints.formats import write_model
from xlnet_tf.checkpoints.model_card import BEST, CARD_FILE, METRICS_FILE, PARAMS_FILE, ModelCard
from xlnet_tf.training.progress import HISTORY, read_history
from xlnet_tf.training.task import Task

# Next to the metrics of the best weights: the dev set, and the step at which it replaced another.
_DEV_SET, _DEV_SET_SINCE = "dev_set", "dev_set_since"


class Patience:
    """Counts the evaluations since the best; a resumed run counts as one that was never stopped does.

    Only evaluations at multiples of the interval count: a run that resumes evaluates where it resumes, too.
    Those of an earlier dev set do not, if the run keeps its best weights.

    Args:
        task: says how good an evaluation is.
        model_dir: folder of the run, whose history has the evaluations before `step`.
        step: at which the run begins or resumes.
        interval: steps between evaluations.
        most: evaluations without a better one after which to end; 0: never.
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
        """Takes an evaluation in; returns whether the run should end now."""
        if not self._most or not step or step % self._interval:
            return False
        value = self._task.dev_score(metrics)
        if value > self._best:
            self._best, self._since = value, 0
        else:  # also where it is NaN
            self._since += 1
        return self._since >= self._most

    def reason(self, step: int) -> str:
        """Says why the run ends at a step."""
        return f"ended at step {step}: {self._since} evaluations were not better than the best before them"


def first_evaluation(model_dir: str) -> dict[str, Any]:
    """Returns the first evaluation in the history of a run, which was before its first step."""
    return next(line for line in read_history(f"{model_dir}/{HISTORY}") if line["kind"] == "dev")


def keep_best(
    task: Task, model: tf_keras.Model, metrics: Mapping[str, float], step: int, model_dir: str
) -> None:
    """Keeps the weights of the best evaluation so far, in a folder that every tool can read.

    Args:
        task: says how good an evaluation is.
        model: has the weights.
        metrics: of the evaluation.
        step: at which it was; at step 0 what an earlier start left is removed.
        model_dir: folder of the run.
    """
    folder = f"{model_dir}/{BEST}"
    if step == 0:
        if tf.io.gfile.exists(folder):  # of a run that was stopped before its first checkpoint
            tf.io.gfile.rmtree(folder)
        return
    best, score, before = read_metrics(folder), task.dev_score(metrics), -math.inf
    of_set = {_DEV_SET: task.dev_set()}
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
    if best:  # they are of the weights that are replaced now; a killed process leaves none of both
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
    """Returns the metrics that a folder of best weights was kept for, and their step; empty if none is."""
    path = f"{folder}/{METRICS_FILE}"
    return files.read_json(path) if tf.io.gfile.exists(path) else {}


def _is_of(best: Mapping[str, Any], task: Task) -> bool:
    """Returns whether the best weights were chosen on the present dev set; earlier versions do not say."""
    return best.get(_DEV_SET, task.dev_set()) == task.dev_set()

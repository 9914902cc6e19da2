"""What evaluations decide: which weights are the best, and whether a run ends before its last step."""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging

from xlnet_tf import files
from xlnet_tf.checkpoints import save_model
from xlnet_tf.checkpoints.model_card import BEST, CARD_FILE, METRICS_FILE, PARAMS_FILE, ModelCard
from xlnet_tf.training.progress import DEV_SET, HISTORY, read_history
from xlnet_tf.training.task import Task


class Patience:
    """Counts the evaluations since the best; a resumed run counts as one that was never stopped does.

    Only evaluations at multiples of the interval count: a run that resumes evaluates where it resumes, too.
    Those of another dev set, with which the run was begun, do not.

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
            for line in _evaluations(task, path):
                if line["step"] < step:
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


def first_value(name: str, task: Task, metrics: Mapping[str, float], model_dir: str) -> float:
    """Returns a metric of a run's first evaluation on the present dev set, given those of the last one."""
    found = _evaluations(task, f"{model_dir}/{HISTORY}")
    return next((line[name] for line in found if name in line), metrics[name])


def _evaluations(task: Task, path: str) -> Iterator[dict[str, Any]]:
    """Yields the lines of a history that are evaluations on the present dev set."""
    dev_set = task.dev_set()
    for line in read_history(path):
        if line["kind"] == "dev" and line.get(DEV_SET, dev_set) == dev_set:  # earlier versions' do not say
            yield line


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
    best, score, before, dev_set = read_metrics(folder), task.dev_score(metrics), -math.inf, task.dev_set()
    if best.get(DEV_SET, dev_set) != dev_set:  # those of earlier versions do not say
        logging.warning("%s was the best on other dev examples: it is forgotten", folder)
        tf.io.gfile.rmtree(folder)
        best = {}
    with contextlib.suppress(KeyError):  # there is none, or it has other metrics
        before = task.dev_score(best)
    if math.isnan(score) or score <= before:
        return
    if best:  # they are of the weights that are replaced now; a killed process leaves none of both
        tf.io.gfile.remove(f"{folder}/{METRICS_FILE}")
    tf.io.gfile.makedirs(folder)
    task.save_assets(folder)
    files.copy(f"{model_dir}/{PARAMS_FILE}", f"{folder}/{PARAMS_FILE}")
    values = {"step": step, DEV_SET: dev_set, **metrics}
    card = ModelCard.read(folder, {CARD_FILE: None, METRICS_FILE: values})
    save_model(model, folder, card=card)
    files.write(f"{folder}/{METRICS_FILE}", json.dumps(values, indent=1) + "\n")
    card.write(model_dir)


def read_metrics(folder: str) -> dict[str, Any]:
    """Returns the metrics that a folder of best weights was kept for, and their step; empty if none is."""
    path = f"{folder}/{METRICS_FILE}"
    return files.read_json(path) if tf.io.gfile.exists(path) else {}

"""When a run ends before its last step: its evaluations no longer become better."""

import math

import tensorflow as tf

from xlnet_tf.training.progress import HISTORY, read_history
from xlnet_tf.training.trainer import Task


class Patience:
    """Counts the evaluations since the best; a resumed run counts as one that was never stopped does.

    Only evaluations at multiples of the interval count: a run that resumes evaluates where it resumes, too.

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
            for line in read_history(path):
                if line["kind"] == "dev" and line["step"] < step:
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

"""Ends a run whose steps are skipped again and again, and says which records they have."""

import collections
from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.training.trainer import Trainer


class Diverged(UserError):
    """Losses or gradients are NaN, or far too large; the weights still are as they were."""


class Watch:
    """Ends a run that goes nowhere: to be called after each loop of steps, before a checkpoint is saved.

    Args:
        limit: steps that may be skipped in a row; of ten times as many, half.
        last_saved: returns the path of the newest checkpoint; None if there is none.
    """

    def __init__(self, trainer: Trainer, limit: int, last_saved: Callable[[], str | None]):
        self._trainer = trainer
        self._limit = limit
        self._last_saved = last_saved
        self._past = collections.deque()  # after each of the last loops: steps taken, steps skipped
        self._finite_weights = tf.function(self._finite_weights_of_a_replica, autograph=False)

    def __call__(self, logs=None):
        """Raises Diverged if too many steps were skipped, or weights are NaN."""
        step = int(self._trainer.global_step.numpy())
        if not self._finite_weights():
            broken = [v.name for v in self._trainer.model.trainable_variables if not _is_finite(v)][:3]
            self._end(f"after {step} steps the weights are infinite or NaN: {', '.join(broken)}, ...")
        in_a_row = int(self._trainer.guard.in_a_row.numpy())
        lately, skipped = self._lately(step)
        if in_a_row > self._limit:
            self._end(f"{in_a_row} steps in a row {self._skipped()}")
        if lately >= 10 * self._limit and 2 * skipped > lately:
            self._end(f"{skipped} of the last {lately} steps {self._skipped()}")

    def _finite_weights_of_a_replica(self) -> tf.Tensor:
        def finite():
            weights = self._trainer.model.trainable_variables
            return tf.reduce_all([_is_finite(variable) for variable in weights])

        # Where the weights are: to copy them from a TPU would take longer than many a step.
        strategy = self._trainer.strategy
        return strategy.experimental_local_results(strategy.run(finite))[0]

    def _lately(self, step: int) -> tuple[int, int]:
        """Returns of how many steps (ten times the limit, or all that there were) how many were skipped."""
        self._past.append((step, int(self._trainer.guard.skipped.numpy())))
        while len(self._past) > 1 and step - self._past[1][0] >= 10 * self._limit:
            self._past.popleft()
        (first, before), (_, now) = self._past[0], self._past[-1]
        return step - first, now - before

    def _skipped(self) -> str:
        """Says why steps were skipped, and which records the first of the last ones has."""
        guard = self._trainer.guard
        first = int(guard.first_in_a_row.numpy())
        if rows := self._trainer.bad_rows(first):
            records = self._trainer.task.name_rows(first, rows)
            found = "the model's outputs are NaN for these records:\n  " + "\n  ".join(records)
        else:
            found = "the model's outputs are finite for all of its rows"
        return (
            "were skipped, as their loss or gradient was infinite, NaN or a spike (usual loss "
            f"{float(guard.usual_loss.numpy()):.3f}). In step {first}, {found}"
        )

    def _end(self, found: str):
        kept = self._last_saved()
        raise Diverged(
            f"training has diverged: {found}\n"
            f"{f'The last good weights are in {kept}' if kept else 'No weights had been saved'}. Lower "
            "learning_rate, raise warmup_steps, take another seed, or look at the records"
        )


def _is_finite(variable: tf.Variable) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(variable))

"""Guards against NaN, infinite and spiking losses: skips and counts steps, and ends runs with too many.

A step changes no weight if its loss or gradient is infinite or NaN, or if its loss is a multiple of the usual
one (a spike). In float16, where gradients vanish or overflow, the loss is multiplied by an adaptive factor;
an overflow then lowers the factor and does not count as skipped.
"""

import collections
from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.errors import UserError

SPIKE_MEMORY = 100  # steps in the mean of the usual loss; spikes are detected only after as many
FIRST_SCALE = 2.0**15
GROWTH_STEPS = 2000  # good steps after which the factor is doubled


class Guard(tf.Module):
    """Judges each step; create it under the strategy's scope. `scale_loss` is for float16.

    Its variables are equal on all replicas and part of the checkpoint.
    """

    def __init__(self, spike_factor: float = 0.0, scale_loss: bool = False):
        super().__init__()
        self._spike_factor = spike_factor
        self._scale_loss = scale_loss
        self.skipped = _variable(0, tf.int64, "skipped")  # steps skipped since the run began
        self.in_a_row = _variable(0, tf.int64, "in_a_row")  # steps skipped since the last good one
        self.first_in_a_row = _variable(0, tf.int64, "first_in_a_row")  # of these steps, counted from 0
        # The mean of about the last SPIKE_MEMORY good steps.
        self.usual_loss = _variable(0, tf.float32, "usual_loss")
        # What multiplies the loss when its gradient is taken; 1 without scale_loss.
        self.loss_scale = _variable(FIRST_SCALE if scale_loss else 1, tf.float32, "loss_scale")
        self._good = _variable(0, tf.int64, "good")

    @property
    def updates(self) -> tf.Tensor:
        """Steps taken and not skipped since the run began, int64."""
        return self._good.read_value()

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self.loss_scale if self._scale_loss else loss

    def unscaled(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the gradients of the loss from those of `scaled`."""
        if not self._scale_loss:
            return gradients
        # A power of two: nothing is rounded.
        return [gradient / self.loss_scale for gradient in gradients]

    def judge(
        self, loss: tf.Tensor, gradient_norm: tf.Tensor, step: tf.Tensor, live: tf.Tensor | bool = True
    ) -> tf.Tensor:
        """Returns whether to take a step, and counts; in replica context, with equal numbers on all replicas.

        The loss is that of the global batch, the norm that of the gradient that would be applied, without
        loss_scale, and `step` the steps before this one. Unless `live`, the step only compiles its graph.
        """
        finite_loss, finite = tf.math.is_finite(loss), tf.math.is_finite(gradient_norm)
        keep = finite_loss & finite & live
        usual, good = self.usual_loss.read_value(), self._good.read_value()
        if self._spike_factor:
            keep &= ~((good >= SPIKE_MEMORY) & (loss > self._spike_factor * usual))
        fault = ~keep & live
        if self._scale_loss:
            scale = self.loss_scale.read_value()
            overflow = finite_loss & ~finite & (scale > 1) & live
            fault &= ~overflow
            grows = keep & (good % GROWTH_STEPS == GROWTH_STEPS - 1)
            self.loss_scale.assign(tf.where(overflow, scale / 2, tf.where(grows, scale * 2, scale)))
        weight = 1 / tf.cast(tf.minimum(good + 1, SPIKE_MEMORY), tf.float32)
        self.usual_loss.assign(tf.where(keep, usual + weight * (loss - usual), usual))
        self._good.assign_add(tf.cast(keep, tf.int64))
        before = self.in_a_row.read_value()
        first = self.first_in_a_row.read_value()
        self.first_in_a_row.assign(tf.where(fault & (before == 0), step, first))
        self.in_a_row.assign(tf.where(keep, tf.zeros_like(before), before + tf.cast(fault, tf.int64)))
        self.skipped.assign_add(tf.cast(fault, tf.int64))
        return keep


def _variable(value, dtype: tf.DType, name: str) -> tf.Variable:
    return tf.Variable(
        tf.cast(value, dtype),
        trainable=False,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


class Diverged(UserError):
    """Losses or gradients are NaN or far too large; the weights are unchanged."""


class Watch:
    """Ends a diverged run, after each loop and before a checkpoint: `limit` skipped in a row, or many."""

    def __init__(self, trainer, limit: int, last_saved: Callable[[], str | None]):
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

        # On the devices: copying the weights from a TPU would take longer than many a step.
        strategy = self._trainer.strategy
        return strategy.experimental_local_results(strategy.run(finite))[0]

    def _lately(self, step: int) -> tuple[int, int]:
        """Returns the number of recent steps (ten times the limit, or all) and how many were skipped."""
        self._past.append((step, int(self._trainer.guard.skipped.numpy())))
        while len(self._past) > 1 and step - self._past[1][0] >= 10 * self._limit:
            self._past.popleft()
        (first, before), (_, now) = self._past[0], self._past[-1]
        return step - first, now - before

    def _skipped(self) -> str:
        """Returns why steps were skipped, and which records the first of the last skipped steps has."""
        guard = self._trainer.guard
        first = int(guard.first_in_a_row.numpy())
        if rows := self._trainer.bad_rows(first):
            records = self._trainer.batching.describe_rows(first, rows)
            outputs = "the model's outputs are NaN for these records:\n  " + "\n  ".join(records)
        else:
            outputs = "the model's outputs are finite for all of its rows"
        return (
            "were skipped, as their loss or gradient was infinite, NaN or a spike (usual loss "
            f"{float(guard.usual_loss.numpy()):.3f}). In step {first}, {outputs}"
        )

    def _end(self, reason: str):
        saved = self._last_saved()
        raise Diverged(
            f"training has diverged: {reason}\n"
            f"{f'The last good weights are in {saved}' if saved else 'No weights had been saved'}. Lower "
            "learning_rate, raise warmup_steps, take another seed, or look at the records"
        )


def _is_finite(variable: tf.Variable) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(variable))

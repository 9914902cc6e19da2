"""Losses that are NaN, infinite or spikes: steps are skipped, counted and, if too many, the run ends.

A step whose loss or gradient is infinite or NaN changes no weight, and neither does one whose loss is a
multiple of what it has been lately (a spike). In float16, where gradients vanish or overflow, the loss is
multiplied by a factor that follows what fits; an overflow then lowers the factor and is not counted.
"""

import tensorflow as tf

SPIKE_MEMORY = 100  # steps over which the usual loss is a mean, and before which no spike is detected
FIRST_SCALE = 2.0**15
GROWTH_STEPS = 2000  # good steps after which the factor is doubled


class Guard(tf.Module):
    """Judges each step; create it under the strategy's scope.

    Its variables are alike on all replicas and part of the checkpoint.

    Args:
        spike_factor: a step is skipped if its loss is more than this many times the usual one; 0: never.
        scale_loss: whether to multiply the loss, for float16.

    Attributes:
        skipped: int64, steps skipped since the run began.
        in_a_row: int64, steps skipped since the last good one.
        first_in_a_row: int64, the step (counted from 0) with which these began.
        usual_loss: float32, mean of the losses of about the last SPIKE_MEMORY good steps.
        loss_scale: float32, what the loss is multiplied by for its gradient; 1 without scale_loss.
    """

    def __init__(self, spike_factor: float = 0.0, scale_loss: bool = False):
        super().__init__()
        self._spike_factor = spike_factor
        self._scale_loss = scale_loss
        self.skipped = _variable(0, tf.int64, "skipped")
        self.in_a_row = _variable(0, tf.int64, "in_a_row")
        self.first_in_a_row = _variable(0, tf.int64, "first_in_a_row")
        self.usual_loss = _variable(0, tf.float32, "usual_loss")
        self.loss_scale = _variable(FIRST_SCALE if scale_loss else 1, tf.float32, "loss_scale")
        self._good = _variable(0, tf.int64, "good")

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss to take the gradient of."""
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
        """Returns whether to take a step, and counts; in replica context, the same numbers on all replicas.

        Args:
            loss: float32 scalar, of the global batch.
            gradient_norm: float32 scalar, of the gradient that would be applied, loss_scale taken out.
            step: int64 scalar, steps before this one.
            live: bool scalar; False: the step is taken to compile it alone, and changes nothing.

        Returns:
            bool scalar.
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

"""A metric that is one sum divided by another, each over all replicas, micro-batches and steps."""

import tensorflow as tf
import tf_keras


class Ratio(tf_keras.metrics.Metric):
    """The quotient of two sums; a mean of means would weigh steps and replicas wrongly.

    Args:
        name: the metric's name in logs.
    """

    def __init__(self, name: str):
        super().__init__(name=name, dtype=tf.float32)
        self.numerator = self.add_weight("numerator", initializer="zeros")
        self.denominator = self.add_weight("denominator", initializer="zeros")

    def update_state(self, numerator: tf.Tensor, denominator: tf.Tensor):
        """Adds to both sums (scalars)."""
        self.numerator.assign_add(numerator)
        self.denominator.assign_add(denominator)

    def result(self) -> tf.Tensor:
        """Returns the quotient, 0 before anything was added."""
        return tf.math.divide_no_nan(self.numerator, self.denominator)


class ExponentialRatio(Ratio):
    """e to the quotient: perplexity from summed losses in nats."""

    def result(self) -> tf.Tensor:
        return tf.exp(super().result())

"""Training with rare labels: class weights, balanced sampling, label smoothing.

They change the training loss only. Evaluations, including the loss on the dev examples, are unaffected.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.tasks.settings import FinetuningConfig

NONE, BALANCED, UNIFORM = "none", "balanced", "uniform"


@dataclasses.dataclass
class LabelConfig(FinetuningConfig):
    """Settings of tasks whose examples have labels.

    Attributes:
        class_weights: "none"; "balanced": the examples of each class weigh the same in all; or the weights of
            some classes, as label:weight,label:weight, where others weigh 1. They are scaled to a mean of 1
            over the training set.
    """

    class_weights: str = NONE
    label_smoothing: float = 0.0

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raises UserError if a setting does not fit the labels."""
        if not 0 <= self.label_smoothing < 1:
            raise UserError(
                f"task.label_smoothing (--label_smoothing) is {self.label_smoothing}: expected 0 or "
                "more, and less than 1"
            )
        if self.class_weights not in (NONE, BALANCED):
            _parse(self.class_weights, labels)
        if not labels and (self.class_weights != NONE or self.label_smoothing):
            raise UserError(
                "task.class_weights and task.label_smoothing are for examples with labels: leave them out, "
                "these have numbers"
            )

    def weights(self, labels: Sequence[str], counts: np.ndarray) -> np.ndarray | None:
        """Returns how much each class weighs, float32 [C], by its training examples; None without weights.

        With n_c examples of class c, and the given weights g_c, or 1 / n_c if they are to be balanced, an
        example of the class weighs g_c * sum(n) / sum(g * n).
        """
        if self.class_weights == NONE:
            return None
        class_weights = None if self.class_weights == BALANCED else _parse(self.class_weights, labels)
        return _scaled(class_weights, counts)

    def label_set_weights(self, labels: Sequence[str], targets: np.ndarray) -> np.ndarray | None:
        """Returns weights where a text may have several labels: float32 [2, C], without and with it; or None.

        Each label is a class by itself, and texts without it are another, whose given weight is 1.
        """
        if self.class_weights == NONE:
            return None
        class_weights = None if self.class_weights == BALANCED else _parse(self.class_weights, labels)
        columns = []
        for index, with_label in enumerate(np.sum(targets, axis=0)):
            counts = np.array([len(targets) - with_label, with_label])
            columns.append(
                _scaled(None if class_weights is None else np.array([1.0, class_weights[index]]), counts)
            )
        return np.stack(columns, axis=1)


def _parse(text: str, labels: Sequence[str]) -> np.ndarray:
    """Reads label:weight,label:weight; returns the weight of each label, [C]."""
    weights = dict.fromkeys(labels, 1.0)
    # Labels may have colons and commas in them.
    names = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    rest, seen = text, set[str]()
    while rest:
        match = re.match(rf"({names}):([^,:]+)(?:,(?=.)|$)", rest)
        if not match or match[1] in seen or not _is_weight(match[2]):
            shown = ", ".join(labels) or "none, as these examples have numbers"
            raise UserError(
                f"task.class_weights (--class_weights) is {text!r}: at {rest!r}, expected LABEL:WEIGHT, "
                f"each label once with a number above 0. Write {BALANCED}, {NONE}, or "
                f"LABEL:WEIGHT,LABEL:WEIGHT; the labels are {shown}"
            )
        weights[match[1]] = float(match[2])
        seen.add(match[1])
        rest = rest[match.end() :]
    return np.array([*weights.values()])


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _scaled(given: np.ndarray | None, counts: np.ndarray) -> np.ndarray:
    """Returns weights of classes, of which all examples have a mean of 1; given None, balanced ones."""
    if given is None:
        given = np.divide(1, counts, out=np.zeros(len(counts)), where=counts > 0)
    return (given * counts.sum() / (given @ counts)).astype(np.float32)


def training_losses(
    losses: tf.Tensor, logits: tf.Tensor, labels: tf.Tensor, weights: np.ndarray | None, smoothing: float
) -> tf.Tensor:
    """Smooths and weighs the losses [...] of classes y: w_y * ((1 - s) * -log p_y + s * mean of -log p_c).

    Source: Szegedy et al. 2016, Rethinking the Inception architecture, section 7.
    """
    if smoothing:
        of_all = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
        losses = (1 - smoothing) * losses + smoothing * of_all
    if weights is not None:
        losses *= tf.reduce_sum(tf.one_hot(labels, logits.shape[-1]) * weights, axis=-1)
    return losses


def label_set_losses(
    logits: tf.Tensor, labels: tf.Tensor, weights: np.ndarray | None = None, smoothing: float = 0.0
) -> tf.Tensor:
    """Returns the mean cross entropy over independent labels [B, C], weighed by [2, C], of 0 and of 1.

    With smoothing s, the target of a label y is (1 - s) * y + s / 2.
    """
    targets = tf.cast(labels, tf.float32)
    smoothed = targets * (1 - smoothing) + smoothing / 2 if smoothing else targets
    losses = tf.nn.sigmoid_cross_entropy_with_logits(smoothed, logits)
    if weights is not None:
        losses *= targets * weights[1] + (1 - targets) * weights[0]
    return tf.reduce_mean(losses, axis=-1)

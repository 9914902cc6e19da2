"""Losses of ranking over the K candidates of a record, as sums with their counts.

In all of them: logits [B, K] float32; relevance [B, K] int32, -1 in slots without a candidate, which take no
part. Grades from `relevant_from` up are relevant; pairs and lists also distinguish grades.
"""

from collections.abc import Callable

import tensorflow as tf

SumAndCount = tuple[tf.Tensor, tf.Tensor]


def pointwise(logits: tf.Tensor, relevance: tf.Tensor, relevant_from: int) -> SumAndCount:
    """Each candidate by itself: is it relevant? Sigmoid cross entropy; the count is of candidates."""
    real = tf.cast(relevance >= 0, tf.float32)
    relevant = tf.cast(relevance >= relevant_from, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(relevant, logits)
    return tf.reduce_sum(real * losses), tf.reduce_sum(real)


def pairwise(logits: tf.Tensor, relevance: tf.Tensor, relevant_from: int) -> SumAndCount:
    """Each pair of a more and a less relevant candidate: logistic loss of the difference of their scores.

    The count is of pairs. Source: RankNet (Burges et al. 2005).
    """
    del relevant_from  # every difference of grades makes a pair
    weights = pairs(relevance)
    losses = tf.nn.softplus(-differences(logits))
    return tf.reduce_sum(weights * losses), tf.reduce_sum(weights)


def listwise(logits: tf.Tensor, relevance: tf.Tensor, relevant_from: int) -> SumAndCount:
    """All candidates at once: softmax cross entropy against the grades, scaled to a sum of 1.

    The count is of records with a relevant candidate. Source: ListNet's loss (Cao et al. 2007).
    """
    grades = tf.cast(tf.where(relevance >= relevant_from, relevance, 0), tf.float32)
    total = tf.reduce_sum(grades, axis=1, keepdims=True)
    targets = tf.math.divide_no_nan(grades, total)
    # A large finite number: in a row of empty slots alone -inf would give NaN.
    log_probabilities = tf.nn.log_softmax(tf.where(relevance >= 0, logits, -1e9))
    return -tf.reduce_sum(targets * log_probabilities), tf.reduce_sum(tf.cast(total > 0, tf.float32))


LOSSES: dict[str, Callable[[tf.Tensor, tf.Tensor, int], SumAndCount]] = {
    "pointwise": pointwise,
    "pairwise": pairwise,
    "listwise": listwise,
}


def pairs(relevance: tf.Tensor) -> tf.Tensor:
    """Returns 1 where candidate i is more relevant than candidate j: [B, K, K] float32."""
    more, less = relevance[:, :, None], relevance[:, None, :]
    return tf.cast((more > less) & (less >= 0), tf.float32)


def differences(logits: tf.Tensor) -> tf.Tensor:
    """Returns score i minus score j: [B, K, K]."""
    return logits[:, :, None] - logits[:, None, :]

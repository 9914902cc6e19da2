"""What the rows of a served batch have in common: lengths of their own, and faults of their own."""

from collections.abc import Sequence

import tensorflow as tf

MOST_BYTES = 1 << 19  # of a text in a request; no model reads as much


def dense(values: tf.RaggedTensor, default) -> tf.Tensor:
    """Pads rows to the longest, to at least 1: not every client copes with empty lists."""
    return values.to_tensor(default, shape=[-1, tf.maximum(values.bounding_shape(axis=1), 1)])


def empty_oversized_texts(**texts: tf.Tensor) -> tuple[dict[str, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Empties texts of more than MOST_BYTES, which would take the server's memory from other requests.

    Args:
        **texts: [B] string, by the names of the inputs.

    Returns:
        The texts, and what first_fault takes: which rows are right, and what is wrong with the others.
    """
    sizes = {name: tf.strings.length(values) for name, values in texts.items()}
    is_right = tf.reduce_all([size <= MOST_BYTES for size in sizes.values()], axis=0)
    named = [tf.strings.join([f"{name} has ", tf.strings.as_string(size)]) for name, size in sizes.items()]
    message = tf.strings.join(named, " bytes, ")
    message = tf.strings.join([message, f" bytes; expected at most {MOST_BYTES}"])
    return {name: tf.where(is_right, values, "") for name, values in texts.items()}, (is_right, message)


def first_fault(checks: Sequence[tuple[tf.Tensor, tf.Tensor | str]]) -> tf.Tensor:
    """Returns what is wrong with each row, [B] string, "" if nothing is.

    An error would take all requests with it that the server put into the batch.

    Args:
        checks: [B] bool, whether a row is right, and what to say, string or [B] string, if it is not.
    """
    fault = tf.fill(tf.shape(checks[0][0]), "")
    for is_right, message in reversed(checks):
        fault = tf.where(is_right, fault, message)
    return fault

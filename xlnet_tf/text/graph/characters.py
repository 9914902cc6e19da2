"""Characters of texts in graph, the unit of character offsets."""

import tensorflow as tf

CPU = "/CPU:0"  # no other device has these operations


def characters(texts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the code points of UTF-8, invalid bytes replaced: [N] string to int32 [N, (characters)]."""
    with tf.device(CPU):
        return tf.strings.unicode_decode(texts, "UTF-8")


def substrings(codes: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Cuts the strings [N] from `begins` to `ends` out of a text without copying it for each."""
    with tf.device(CPU):
        return tf.strings.unicode_encode(tf.gather(codes, tf.ragged.range(begins, ends)), "UTF-8")

"""Products of matrices: head by head, and with weights."""

import tensorflow as tf

from xlnet_tf.layers import hardware


def multiply_by_head(rows: tf.Tensor, matrices: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies the rows of each head by a matrix.

    Args:
        rows: [B, N, Q, H].
        matrices: [B or 1, N or 1, H, any], or transposed.
        transpose_b: whether they are transposed.

    Returns:
        [B, N, Q, any].
    """
    if rows.shape[1] == 1:
        # oneDNN's product reads past the end of an operand that it has to repeat, where there is one head:
        # the numbers are wrong, or the process dies later.
        matrices = tf.tile(matrices, [tf.shape(rows)[0] // tf.shape(matrices)[0], 1, 1, 1])
    return tf.matmul(rows, matrices, transpose_b=transpose_b)


def multiply_by_weights(rows: tf.Tensor, weights: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies rows by weights, in the rows' type.

    On a TPU weights of a wider type are narrowed for the product, and once more for its gradient: the copies
    of all layers' weights would stay in memory from one to the other.

    Args:
        rows: [R, D].
        weights: [D, F], or transposed.
        transpose_b: whether they are transposed.

    Returns:
        [R, F].
    """
    weights = tf.convert_to_tensor(weights)

    def product(rows, weights):
        return tf.matmul(rows, tf.cast(weights, rows.dtype), transpose_b=transpose_b)

    @tf.custom_gradient
    def narrowed_twice(rows, weights):
        def gradient(upstream):
            narrow = tf.cast(weights + zero_after(upstream[0, 0], weights.dtype), rows.dtype)
            left, right = (upstream, rows) if transpose_b else (rows, upstream)
            of_weights = tf.cast(tf.matmul(left, right, transpose_a=True), weights.dtype)
            return tf.matmul(upstream, narrow, transpose_b=not transpose_b), of_weights

        return product(rows, weights), gradient

    if hardware.kind() == "tpu" and weights.dtype != rows.dtype:
        return narrowed_twice(rows, weights)
    return product(rows, weights)


def affine(rows: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Multiplies rows by weights and adds a bias, in the rows' type.

    Args:
        rows: [R, D].
        weights: [D, F].
        bias: [F].
        training: whether there will be a gradient.

    Returns:
        [R, F].
    """
    weights, bias = tf.convert_to_tensor(weights), tf.cast(bias, rows.dtype)

    @tf.custom_gradient
    def turned_for_gradient(rows, weights, bias):
        def gradient(upstream):
            # Not before it is needed, or all layers' would be there from the start of the step; and with a
            # third axis, or TensorFlow would make one product of both again.
            with tf.control_dependencies([upstream]):
                turned = tf.reshape(tf.transpose(weights[:, :, None], [1, 0, 2]), weights.shape[::-1])
            of_weights = tf.matmul(rows, upstream, transpose_a=True)
            return tf.matmul(upstream, turned), of_weights, tf.raw_ops.BiasAddGrad(out_backprop=upstream)

        return tf.nn.bias_add(tf.matmul(rows, weights), bias), gradient

    # In float32 oneDNN is slow at turning weights with long rows within a product: to turn 768 x 3072 takes a
    # sixth of the product's time with 1024 rows, and two fifths with 170. On its own it takes little.
    is_slow = rows.dtype == weights.dtype == tf.float32 and weights.shape[0] < weights.shape[1]
    if training and is_slow and hardware.kind() == "cpu":
        return turned_for_gradient(rows, weights, bias)
    return tf.nn.bias_add(multiply_by_weights(rows, weights), bias)


def zero_after(number: tf.Tensor, dtype) -> tf.Tensor:
    """Returns a zero that has to wait for a number.

    What it is added to waits as well, so that no compiler takes it for what was computed before.
    """
    return tf.cast(tf.where(number == number, 0.0, float("nan")), dtype)

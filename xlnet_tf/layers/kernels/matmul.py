"""Products of matrices, and what goes with their gradients."""

import functools
import operator
from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.layers.kernels import device


def matmul_heads(rows: tf.Tensor, matrices: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies the rows [B, N, Q, H] of each head by a matrix [B or 1, N or 1, H, any], or transposed."""
    if rows.shape[1] == 1:
        # With one head, oneDNN's product reads past the end of an operand that it has to repeat: the numbers
        # are wrong, or the process dies later.
        matrices = tf.tile(matrices, [tf.shape(rows)[0] // tf.shape(matrices)[0], 1, 1, 1])
    return tf.matmul(rows, matrices, transpose_b=transpose_b)


def ordered_grad_fanout(tensor: tf.Tensor, count: int, add: Callable | None = None) -> list[tf.Tensor]:
    """Gives a tensor to several users, whose gradients `add` sums, by default in their order.

    TensorFlow's own sum of three or more begins with the one whose memory is the first to be free for the
    result: with gradients that something else reads, too, the last bits would be a matter of timing.
    """

    @tf.custom_gradient
    def run(tensor):
        return [tf.identity(tensor) for _ in range(count)], add or add_in_order

    return run(tensor)


def add_in_order(*tensors: tf.Tensor) -> tf.Tensor:
    """Adds tensors from the first to the last."""
    return functools.reduce(operator.add, tensors)


def matmul_narrowed_twice(rows: tf.Tensor, weights: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies rows [R, D] by weights [D, F] of a wider type, which are narrowed anew for the gradient.

    Replaces a product with narrowed weights: on a TPU the narrow copies of all layers' weights would stay in
    memory from the product to its gradient. The numbers are the same.
    """

    @tf.custom_gradient
    def product(rows, weights):
        def gradient(upstream):
            narrow = tf.cast(weights + control_dependency_zero(upstream[0, 0], weights.dtype), rows.dtype)
            left, right = (upstream, rows) if transpose_b else (rows, upstream)
            weights_gradient = tf.cast(tf.matmul(left, right, transpose_a=True), weights.dtype)
            return tf.matmul(upstream, narrow, transpose_b=not transpose_b), weights_gradient

        return tf.matmul(rows, tf.cast(weights, rows.dtype), transpose_b=transpose_b), gradient

    return product(rows, weights)


def matmul_in_float32(a: tf.Tensor, b: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies matrices and returns float32, which takes a TPU no more time."""
    return tf.matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32), transpose_b=transpose_b)


def einsum(equation: str, *operands: tf.Tensor) -> tf.Tensor:
    """Computes tf.einsum, and its gradients, in the first operand's type, with sums in float32.

    Without a processor's instructions for bfloat16, TensorFlow's own adds bfloat16 numbers one by one in
    bfloat16: 8,192 ones make 2,816. Its products of matrices do not, nor does what XLA compiles for a TPU.
    """
    dtype = operands[0].dtype
    if dtype != tf.bfloat16 or device.is_compiled():
        return tf.einsum(equation, *operands)
    return tf.cast(tf.einsum(equation, *(tf.cast(each, tf.float32) for each in operands)), dtype)


def dense_transposed_for_gradient(rows: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Multiplies rows [R, D] by weights [D, F], and adds a bias; the gradient transposes the weights first.

    Replaces a dense layer in float32 whose weights have long rows. oneDNN is slow at transposing those within
    a product: for 768 x 3072 it takes a sixth of the product's time with 1024 rows, and two fifths with 170.
    On its own it takes little. The numbers are the same.
    """

    @tf.custom_gradient
    def product(rows, weights, bias):
        def gradient(upstream):
            # Not before it is needed, or all layers' would be there from the start of the step; and with a
            # third axis, or TensorFlow would make one product of both again.
            with tf.control_dependencies([upstream]):
                transposed = tf.reshape(tf.transpose(weights[:, :, None], [1, 0, 2]), weights.shape[::-1])
            weights_gradient = tf.matmul(rows, upstream, transpose_a=True)
            bias_gradient = tf.raw_ops.BiasAddGrad(out_backprop=upstream)
            return tf.matmul(upstream, transposed), weights_gradient, bias_gradient

        return tf.nn.bias_add(tf.matmul(rows, weights), bias), gradient

    return product(rows, weights, bias)


def add_bias(rows: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Adds a bias [F], whose gradient is summed in float32, to rows [R, F], in their type.

    TensorFlow's own adds bfloat16 numbers one by one in bfloat16: 10,000 ones make 256. A product with ones
    sums in float32, and takes a CPU less time. What XLA compiles sums in float32, too.
    """
    bias = tf.cast(bias, rows.dtype)
    if rows.dtype == tf.float32 or device.is_compiled():
        return tf.nn.bias_add(rows, bias)

    @tf.custom_gradient
    def add(rows, bias):
        def gradient(upstream):
            ones = tf.ones([1, tf.shape(upstream)[0]], upstream.dtype)
            return upstream, tf.matmul(ones, upstream)[0]

        return tf.nn.bias_add(rows, bias), gradient

    return add(rows, bias)


def control_dependency_zero(number: tf.Tensor, dtype) -> tf.Tensor:
    """Returns a zero that waits for a number, so that no compiler takes what it is added to for another."""
    return tf.cast(tf.where(number == number, 0.0, float("nan")), dtype)

"""Products of matrices that must not depend on how a library repeats or narrows their operands."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.layers.kernels import current, device
from xlnet_tf.layers.kernels.matmul import add_bias, einsum, matmul_heads


def test_products_of_one_head_stay_within_their_operands():
    """oneDNN's broadcast product does not: it crashed, or gave numbers from beyond the end."""
    rng = np.random.default_rng(0)
    for heads in (1, 2):
        for _ in range(60):
            rows = rng.normal(size=[3, heads, 9, 8]).astype(np.float32)
            keys = rng.normal(size=[1, heads, 18, 8]).astype(np.float32)
            expected = rows @ keys.transpose(0, 1, 3, 2)
            np.testing.assert_allclose(matmul_heads(rows, keys, transpose_b=True), expected, atol=1e-4)
            column = keys[:, :, :1].transpose(0, 1, 3, 2)
            np.testing.assert_allclose(matmul_heads(rows, column), rows @ column, atol=1e-4)
            shared = keys[:, :1]  # by all heads
            expected = rows @ shared.transpose(0, 1, 3, 2)
            np.testing.assert_allclose(matmul_heads(rows, shared, transpose_b=True), expected, atol=1e-4)


@pytest.mark.parametrize("transpose", [False, True])
def test_all_devices_round_wide_weights_equally(transpose):
    rng = np.random.default_rng(0)
    rows = tf.constant(rng.normal(size=[5, 6]), tf.bfloat16)
    weights = tf.Variable(rng.normal(size=[4, 6] if transpose else [6, 4]).astype(np.float32))
    upstream = tf.constant(rng.normal(size=[5, 4]), tf.bfloat16)
    found = []
    for kind in ("cpu", "tpu"):
        with device.assume(kind), tf.GradientTape() as tape:
            tape.watch(rows)
            product = current(training=True).matmul(rows, weights, transpose)
        found.append([product, *tape.gradient(product, [rows, weights], upstream)])
        assert [value.dtype for value in found[-1]] == [tf.bfloat16, tf.bfloat16, tf.float32]
    for expected, other in zip(*found):
        np.testing.assert_array_equal(expected.numpy(), other.numpy())
    wide = tf.matmul(tf.cast(rows, tf.float32), weights, transpose_b=transpose)
    np.testing.assert_allclose(tf.cast(found[0][0], tf.float32), wide, atol=0.1)


def test_einsum_and_biases_sum_bfloat16_in_float32():
    """TensorFlow's own makes 2,816 of 8,192 ones, and a gradient likewise, on processors without bfloat16."""
    rows = tf.ones([8192, 3], tf.bfloat16)
    weights = tf.ones([3, 2], tf.bfloat16)
    bias = tf.zeros([2])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([weights, bias])
        product = einsum("nd,df->nf", rows, weights)
        biased = add_bias(product, bias)
    np.testing.assert_array_equal(tape.gradient(biased, bias), np.full([2], 8192))
    assert product.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(einsum("nd,nf->df", rows, rows), tf.float32), np.full([3, 3], 8192))
    np.testing.assert_array_equal(tf.cast(tape.gradient(product, weights), tf.float32), np.full([3, 2], 8192))

"""What is compiled on its own gives the same numbers, and only in training on a CPU."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.layers.block import TransformerBlock
from xlnet_tf.layers.kernels import device
from xlnet_tf.layers.kernels.matmul import ordered_grad_fanout
from xlnet_tf.layers.kernels.xla_fusion import xla_forward_backward, xla_forward_linear
from xlnet_tf.layers.masks import AttentionContext
from xlnet_tf.layers.positions import RelativePositions


def scaled_tanh(x, factor, *, power: int):
    return tf.tanh(x) ** power * factor


def value_and_gradient(function, x, factor):
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = function(x, factor, power=3)
    return result, tape.gradient(result, x, tf.ones_like(x) * 2)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_compiled_equals_plain(dtype):
    x = tf.cast(tf.random.stateless_normal([5, 7], [1, 2]), dtype)
    factor = tf.cast(tf.random.stateless_normal([5, 7], [3, 4]), dtype)
    plain = [tf.cast(tensor, tf.float32) for tensor in value_and_gradient(scaled_tanh, x, factor)]
    by_xla = tf.function(functools.partial(value_and_gradient, xla_forward_backward(scaled_tanh)))(x, factor)
    assert [tensor.dtype for tensor in by_xla] == [dtype, dtype]
    for got, expected in zip(by_xla, plain):
        tolerance = 1e-6 if dtype == tf.float32 else 0.05
        np.testing.assert_allclose(tf.cast(got, tf.float32), expected, atol=tolerance)


def weighted_difference(constants, terms, *, power: int):
    weights, offset = constants
    difference = weights * tf.cast(terms[0] - 2 * terms[1], tf.float32) ** power
    return difference if offset is None else difference + offset


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("offset", [None, tf.constant(3.0)])
def test_a_compiled_sum_equals_the_plain_one(dtype, offset):
    weights, first, second = tf.unstack(tf.random.stateless_normal([3, 5, 7], [1, 2]))
    terms = [tf.cast(first, dtype), tf.cast(second[:, :1], dtype)]

    def value_and_gradients(function, *terms):
        with tf.GradientTape() as tape:
            tape.watch(terms)
            result = function([weights, offset], list(terms), power=1)
        return result, *tape.gradient(result, terms, weights)

    plain = value_and_gradients(weighted_difference, *terms)
    compiled = xla_forward_linear(weighted_difference)
    by_xla = tf.function(functools.partial(value_and_gradients, compiled))(*terms)
    assert [tensor.dtype for tensor in by_xla] == [tf.float32, dtype, dtype]
    for got, expected in zip(by_xla, plain):
        tolerance = 1e-5 if dtype == tf.float32 else 0.1
        np.testing.assert_allclose(tf.cast(got, tf.float32), tf.cast(expected, tf.float32), atol=tolerance)


def compiled_functions(block: TransformerBlock, seed, tokens: int = 3) -> list[str]:
    """Names the functions in the block's graph that XLA would compile on its own."""
    positions = RelativePositions(tf.zeros([tokens + 1, 4]), tf.ones([tokens + 1, 4]), ahead=tokens - 1)

    @tf.function
    def call(x):
        kernels = kernels_lib.current(training=seed is not None)
        context = AttentionContext(query_len=tokens, key_len=tokens)
        return block(x, None, None, positions, context, kernels=kernels, seed=seed)[0]

    functions = call.get_concrete_function(tf.zeros([2, tokens, 8])).graph.as_graph_def().library.function
    return [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]


@pytest.mark.integration
def test_only_training_on_a_cpu_compiles():
    block = TransformerBlock(XLNetConfig.preset("micro", d_model=8, n_head=2, d_head=4, d_inner=16))
    seed = tf.constant([1, 2])
    names = compiled_functions(block, seed)
    assert sum("by_xla" in name for name in names) == 3  # scores, dropout of the weights, activation
    assert sum("forward" in name for name in names) == 1  # normalized sums, of one shape
    assert sum("threefry" in name for name in names) == len(names) - 4 > 0
    # Of a single query only the activation: attention would be compiled anew for each number of keys.
    assert sum("by_xla" in name for name in compiled_functions(block, seed, tokens=1)) == 1
    assert not compiled_functions(block, None)
    for kind in ("gpu", "tpu"):
        with device.assume(kind):
            assert not compiled_functions(block, seed)


@pytest.mark.parametrize(("queries", "compiled"), [(1, 0), (2, 3), (None, 3)])
def test_a_single_query_is_compiled_for_no_number_of_keys(queries, compiled):
    """Neither its scores, nor the dropout of its weights, nor their gradient."""

    def gradient(scores, values, entries):
        kernels = kernels_lib.current(training=True)
        context = AttentionContext(query_len=9, key_len=9, distance_entries=entries)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            total = kernels.combine_scores(scores, scores, None, context)
            result = kernels.softmax_sum(total, values, 0.1, tf.constant([1, 2]))
        return tape.gradient(result, scores)

    shapes = [2, 3, queries, None], [2, 3, None, 4]
    specs = [*(tf.TensorSpec(shape) for shape in shapes), tf.TensorSpec([2, queries, None], tf.int32)]
    functions = tf.function(gradient).get_concrete_function(*specs).graph.as_graph_def().library.function
    assert sum("by_xla" in f.signature.name for f in functions if f.attr["_XlaMustCompile"].b) == compiled


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_fanout_sums_the_gradients_of_its_users(dtype, count):
    x = tf.cast(tf.random.stateless_normal([5, 7], [1, 2]), dtype)
    factors = tf.cast(tf.random.stateless_normal([count, 5, 7], [3, 4]), dtype)

    def values_and_gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = [
                part * factor for part, factor in zip(ordered_grad_fanout(x, count), tf.unstack(factors))
            ]
        return *results, tape.gradient(results, x)

    for run in (values_and_gradient, tf.function(values_and_gradient)):
        *results, gradient = run(x)
        np.testing.assert_array_equal(tf.stack(results), x * factors)
        assert gradient.dtype == dtype
        total = tf.reduce_sum(tf.cast(factors, tf.float32), axis=0)
        np.testing.assert_allclose(
            tf.cast(gradient, tf.float32), total, atol=1e-6 if dtype == tf.float32 else 0.05
        )


def test_fanout_sums_gradients_in_order():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = [part * factor for part, factor in zip(ordered_grad_fanout(x, 3), (1e8, -1e8, 1.0))]
        return tape.gradient(results, x)

    for run in (gradient, tf.function(gradient)):
        np.testing.assert_array_equal(run(tf.ones([5])), 1)  # in any other order 0, or whatever comes first

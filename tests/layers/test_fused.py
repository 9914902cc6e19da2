"""What is compiled on its own gives the same numbers, and only in training on a CPU."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.layers import hardware
from xlnet_tf.layers.block import FeedForward
from xlnet_tf.layers.fused import fused


@fused
def scaled_tanh(x, factor, *, power: int):
    return tf.tanh(x) ** power * factor


def value_and_gradient(x, factor):
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = scaled_tanh(x, factor, power=3)
    return result, tape.gradient(result, x, tf.ones_like(x) * 2)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_compiled_equals_plain(dtype):
    x = tf.cast(tf.random.stateless_normal([5, 7], [1, 2]), dtype)
    factor = tf.cast(tf.random.stateless_normal([5, 7], [3, 4]), dtype)
    plain = [tf.cast(tensor, tf.float32) for tensor in value_and_gradient(x, factor)]
    by_xla = tf.function(value_and_gradient)(x, factor)
    assert [tensor.dtype for tensor in by_xla] == [dtype, dtype]
    for got, expected in zip(by_xla, plain):
        tolerance = 1e-6 if dtype == tf.float32 else 0.05
        np.testing.assert_allclose(tf.cast(got, tf.float32), expected, atol=tolerance)


def compiled_functions(layer: FeedForward, **options) -> list[str]:
    """Names the functions in the layer's graph that XLA would compile on its own."""
    graph = tf.function(lambda x: layer(x, **options)).get_concrete_function(tf.zeros([2, 3, 8])).graph
    functions = graph.as_graph_def().library.function
    return [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]


def test_only_training_on_a_cpu_compiles():
    layer = FeedForward(8, 16, "gelu", dropout=0.1, initializer_range=0.02)
    seed = tf.constant([1, 2])
    assert compiled_functions(layer, seed=seed)
    assert not compiled_functions(layer, seed=None)
    with hardware.assume("tpu"):
        assert not compiled_functions(layer, seed=seed)

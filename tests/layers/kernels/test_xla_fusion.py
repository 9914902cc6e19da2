"""What is compiled on its own gives the same numbers, and only in training on a CPU."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.layers.block import TransformerBlock
from xlnet_tf.layers.kernels import device
from xlnet_tf.layers.kernels.matmul import ordered_grad_fanout
from xlnet_tf.layers.masks import AttentionContext
from xlnet_tf.layers.positions import RelativePositions


def compiled_functions(block: TransformerBlock, seed, tokens: int = 3) -> list[str]:
    """Names the functions in the block's graph that XLA would compile on its own."""
    positions = RelativePositions(tf.zeros([tokens + 1, 4]), tf.ones([tokens + 1, 4]), ahead=tokens - 1)

    @tf.function
    def call(x):
        kernels = kernels_lib.current(training=seed is not None)
        context = AttentionContext(query_len=tokens, key_len=tokens)
        weights = block.block_weights
        return block(x, None, None, positions, context, None, weights=weights, kernels=kernels, seed=seed)[0]

    functions = call.get_concrete_function(tf.zeros([2, tokens, 8])).graph.as_graph_def().library.function
    return [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]


@pytest.mark.integration
def test_only_training_on_a_cpu_compiles():
    block = TransformerBlock(XLNetConfig.preset("micro", d_model=8, n_head=2, d_head=4, d_inner=16))
    block.build()
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


def test_fanout_sums_gradients_in_order():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = [part * factor for part, factor in zip(ordered_grad_fanout(x, 3), (1e8, -1e8, 1.0))]
        return tape.gradient(results, x)

    for run in (gradient, tf.function(gradient)):
        np.testing.assert_array_equal(run(tf.ones([5])), 1)  # in any other order 0, or whatever comes first

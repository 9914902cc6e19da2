"""What is compiled on its own gives the same numbers, and only in training on a CPU."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.layers.base import NormWeights
from xlnet_tf.layers.block import TransformerBlock
from xlnet_tf.layers.kernels import device, xla_fusion
from xlnet_tf.layers.kernels.matmul import ordered_grad_fanout
from xlnet_tf.layers.masks import AttentionContext
from xlnet_tf.layers.positions import RelativePositions


def compiled_functions(block: TransformerBlock, seed) -> list[str]:
    """Names the functions in the block's graph that XLA would compile on its own."""
    positions = RelativePositions(tf.zeros([4, 4]), tf.ones([4, 4]), ahead=2)

    @tf.function
    def call(x):
        kernels = kernels_lib.current(training=seed is not None)
        context = AttentionContext(query_len=3, key_len=3)
        weights = block.block_weights
        return block(x, None, None, positions, context, None, weights=weights, kernels=kernels, seed=seed)[0]

    functions = call.get_concrete_function(tf.zeros([2, 3, 8])).graph.as_graph_def().library.function
    return [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]


@pytest.mark.integration
def test_only_training_on_a_cpu_compiles():
    block = TransformerBlock(XLNetConfig.preset("micro", d_model=8, n_head=2, d_head=4, d_inner=16))
    block.build()
    seed = tf.constant([1, 2])
    names = compiled_functions(block, seed)
    # Scores, dropout of the weights, activation, and normalized sums, which have one shape.
    assert sum("by_xla" in name for name in names) == 4
    assert sum("threefry" in name for name in names) > 0
    assert not compiled_functions(block, None)
    for kind in ("gpu", "tpu"):
        with device.assume(kind):
            assert not compiled_functions(block, seed)


@pytest.mark.parametrize(("uses", "least"), [(1, 1 << 23), (4, 1 << 21)])
def test_unknown_shapes_are_compiled_if_large_or_frequent(uses, least):
    traces = []

    @xla_fusion.compiled_if_large
    def form(x, others, *, sign):
        """Returns 1 if XLA compiled it, and 2 if TensorFlow runs it: they are traced in this order."""
        traces.append(1)
        return tf.zeros_like(x) + sign * len(traces), others[0]

    run = tf.function(lambda x: form(x, [x, None], sign=-1)[0][0])
    with xla_fusion.expect_uses(uses):
        run = run.get_concrete_function(tf.TensorSpec([None]))
    assert [int(run(tf.zeros([size]))) for size in (1, least - 1, least)] == [-2, -2, -1]
    first, second = form(tf.zeros([3]), [tf.ones([2]), None], sign=1)  # known shapes are compiled once
    assert [*first] == [3, 3, 3] and [*second] == [1, 1] and len(traces) == 3


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=lambda dtype: dtype.name)
def test_both_forms_of_a_training_step_agree(dtype):
    """Scores, softmax with dropout, activation and normalization, and their gradients, of unknown shapes."""
    rng = np.random.default_rng(0)
    scores, rows = rng.normal(size=[2, 3, 5, 5]), rng.normal(size=[2, 5, 8])
    norm = NormWeights(tf.constant(rng.normal(size=[8]), tf.float32), tf.zeros([8]))

    def results(scores, rows):
        kernels, seed = kernels_lib.current(training=True), tf.constant([1, 2])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([scores, rows])
            context = AttentionContext(query_len=5, key_len=5, distance_entries=tf.zeros([2, 5, 5], tf.int32))
            total = kernels.combine_scores(scores, scores, None, context)
            sums = kernels.softmax_sum(total, scores, 0.1, seed)
            stream = kernels.normalize_sum(rows, kernels.activate(rows, tf.nn.gelu, 0.1, seed), norm)
            loss = tf.reduce_sum(tf.cast(sums, tf.float32) ** 2) + tf.reduce_sum(
                tf.cast(stream, tf.float32) ** 3
            )
        return [tf.cast(x, tf.float32) for x in (sums, stream, *tape.gradient(loss, [scores, rows]))]

    found = []
    for uses in (1, 1 << 23):
        specs = tf.TensorSpec([None, 3, None, None], dtype), tf.TensorSpec([None, None, 8], dtype)
        with xla_fusion.expect_uses(uses):
            graph = tf.function(results).get_concrete_function(*specs)
        found.append(graph(tf.cast(scores, dtype), tf.cast(rows, dtype)))
    for plain, compiled in zip(*found):
        np.testing.assert_allclose(plain, compiled, atol=1e-5 if dtype == tf.float32 else 0.1, rtol=0.02)


def test_fanout_sums_gradients_in_order():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = [part * factor for part, factor in zip(ordered_grad_fanout(x, 3), (1e8, -1e8, 1.0))]
        return tape.gradient(results, x)

    for run in (gradient, tf.function(gradient)):
        np.testing.assert_array_equal(run(tf.ones([5])), 1)  # in any other order 0, or whatever comes first

"""Dropout: its rate, its independence, and what a seed draws in each form."""

import functools
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.layers.kernels import current, device, dropout, dropout_mask
from xlnet_tf.layers.kernels.dropout_mask import threefry_words


def keep_mask(shape, rate, seed):
    return current(training=True).keep_mask(shape, rate, seed)


@pytest.mark.parametrize("seed", [[5, 7], [5, -7], [-5, 7], [87989972, -14503382]])
def test_dropout_drops_the_same_with_xla(seed):
    drawn = functools.partial(keep_mask, tf.constant([3, 7]), 0.3)
    plain, compiled = (tf.function(drawn, jit_compile=xla, autograph=False) for xla in (False, True))
    np.testing.assert_array_equal(compiled(tf.constant(seed)), plain(tf.constant(seed)))


def test_dropout_of_any_shape_drops_the_same():
    def masks(size):
        return [keep_mask(tf.stack([2, size, 7]), 0.3, tf.constant([3, place])) for place in range(3)]

    of_any = tf.function(masks, input_signature=[tf.TensorSpec([], tf.int32)])
    for size in (1, 3, 4, 37, 73, 1170, 1171):
        np.testing.assert_array_equal(of_any(size), tf.function(functools.partial(masks, size))())


def test_a_seed_draws_the_same_in_all_versions():
    """A run that a newer version resumes drops what it would have dropped."""
    drawn = tf.function(keep_mask)(tf.constant([2, 3]), 0.5, tf.constant([3, 4]))
    np.testing.assert_array_equal(drawn, [[1, 1, 0], [0, 0, 1]])


def test_dropouts_of_a_model_share_a_trace():
    traced = dropout_mask._keep_8_bits.experimental_get_tracing_count

    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def drop_twice(x):
        return dropout(dropout(x, 0.25, tf.constant([1, 2])), 0.25, tf.constant([3, 4]))

    before = traced()
    drop_twice(tf.ones([2, 3]))
    for size in range(1, 6):  # without a graph
        keep_mask([size], 0.75, tf.constant([1, 2]))
    assert traced() - before <= 2  # of either rate


def test_random_words_share_few_programs_and_are_all_drawn():
    """Also at powers of two, where a logarithm may be off by one."""
    words = tf.function(
        threefry_words, input_signature=[tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.int32)]
    )
    counts = [*range(1, 40), *(2**power + more for power in (10, 20) for more in (-1, 0, 1))]
    drawn = []
    with unittest.mock.patch.object(
        dropout_mask, "_threefry", lambda count, _: drawn.append(count) or tf.range(count)
    ):
        for count in counts:
            assert len(threefry_words(count, tf.constant([1, 2]))) == count
            assert len(threefry_words(tf.constant(count), tf.constant([1, 2]))) == count
    drawn, of_tensors = drawn[::2], drawn[1::2]
    assert [*map(int, of_tensors)] == drawn
    assert len(set(drawn)) < 20 and all(count <= most <= 1.5 * count for count, most in zip(counts, drawn))
    for count in counts:
        np.testing.assert_array_equal(
            words(count, tf.constant([1, 2])), threefry_words(count, tf.constant([1, 2]))
        )


@pytest.mark.parametrize("kind", ["cpu", "tpu"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.003, 0.999])
def test_dropout_meets_its_rate_everywhere_in_a_random_word(rate, kind):
    masks, count = 500, 8_003
    draw = tf.function(lambda seed: keep_mask([count], rate, seed))
    with device.assume(kind):
        drops = ~np.stack([draw(tf.constant([5, place])) for place in range(masks)])
    # Each has one of the two multiples of 1/256 that the rate lies between.
    of_calls = 1 / 512 / np.sqrt(masks)
    deviation = np.sqrt(rate * (1 - rate) / (masks * count / 4))
    for part in (*(drops[:, lane::4] for lane in range(4)), drops[:, : count // 4], drops[:, -count // 4 :]):
        assert abs(part.mean() - rate) < 4 * (deviation + of_calls) + 2**-17
    # Neighbours, of one word or of two, are dropped independently.
    pairs = drops[:, :-1] & drops[:, 1:]
    for lane in range(4):
        spread = np.sqrt(rate**2 * (1 - rate**2) / (masks * count / 4))
        assert abs(pairs[:, lane::4].mean() - rate**2) < 4 * (spread + 2 * rate * of_calls) + 2**-16


@pytest.mark.parametrize("kind", ["cpu", "tpu"])
@pytest.mark.parametrize("shape", [[6, 7], [3, 5, 6], [2, 2, 3, 9]])
def test_elements_are_dropped_independently_of_each_other(shape, kind):
    masks, rate = 4000, 0.1
    with device.assume(kind):
        draw = tf.function(
            lambda seeds: tf.map_fn(
                lambda seed: keep_mask(shape, rate, seed), seeds, fn_output_signature=bool
            ),
            autograph=False,
        )
        drops = ~draw(tf.stack([tf.range(masks), tf.fill([masks], 7)], axis=1)).numpy().reshape(masks, -1)
    assert abs(drops.mean(axis=0) - rate).max() < 5 * np.sqrt(rate * (1 - rate) / masks)
    correlations = np.corrcoef(drops, rowvar=False) - np.eye(drops.shape[1])
    assert abs(correlations).max() < 6 / np.sqrt(masks)


@pytest.mark.parametrize("kind", ["cpu", "tpu"])
def test_dropout_drops_the_same_of_the_gradient(kind):
    x = tf.random.stateless_normal([4, 5, 37], [7, 8])  # 37: neither even nor full bytes
    with device.assume(kind), tf.GradientTape() as tape:
        tape.watch(x)
        dropped = dropout(x, 0.3, tf.constant([1, 2]))
    gradient = tape.gradient(dropped, x).numpy()
    np.testing.assert_allclose(gradient * x, dropped, atol=1e-6)
    assert set(np.unique(gradient.round(4))) == {0, np.float32(1 / 0.7).round(4)}

"""The layers' pieces equal the original's functions on its numeric fixtures."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.models.original import load_case
from xlnet_tf.layers import hardware, masks
from xlnet_tf.layers import positions as positions_lib
from xlnet_tf.layers.attention import RelativeAttention, StreamView, hide, sum_by_softmax
from xlnet_tf.layers.block import FeedForward, gelu
from xlnet_tf.layers.dropout import dropout, kept, seed_at
from xlnet_tf.layers.products import affine, multiply_by_head, multiply_by_weights

UNITS, _ = load_case("units")


def test_gelu():
    np.testing.assert_allclose(gelu(UNITS["gelu_in"]), UNITS["gelu_out"], atol=1e-6)


def test_layer_norm():
    norm = tf_keras.layers.LayerNormalization(epsilon=1e-12)
    norm.build(UNITS["ln_in"].shape)
    norm.set_weights([UNITS["ln_gamma"], UNITS["ln_beta"]])
    np.testing.assert_allclose(norm(UNITS["ln_in"]), UNITS["ln_out"], atol=2e-6)


def test_shift_by_row_and_by_position():
    scores = UNITS["rel_shift_in"].transpose(2, 3, 0, 1)  # [Q, R, B, N] -> [B, N, Q, R]
    expected = UNITS["rel_shift_klen12"].transpose(2, 3, 0, 1)
    np.testing.assert_array_equal(positions_lib.shift_by_row(tf.constant(scores), 12), expected)
    order = np.int32([[3, 0, 4], [1, 1, 2]])
    picked = np.stack([scores[b][:, order[b]] for b in range(2)])
    shifted = positions_lib.shift_by_position(tf.constant(picked), tf.constant(order), 5, 12)
    np.testing.assert_array_equal(shifted, np.stack([expected[b][:, order[b]] for b in range(2)]))


def test_gradient_of_the_shift():
    scores = tf.Variable(np.random.default_rng(0).normal(size=[2, 3, 5, 17]).astype(np.float32))
    weights = np.random.default_rng(1).normal(size=[2, 3, 5, 12]).astype(np.float32)
    in_order = tf.tile(tf.range(5)[None], [2, 1])
    gradients = []
    for shift in (
        lambda: positions_lib.shift_by_row(scores, 12),
        lambda: positions_lib.shift_by_position(scores, in_order, 5, 12),
    ):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(shift() * weights)
        gradients.append(tape.gradient(total, scores))
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize(
    ("name", "attention_type", "clamp_len"),
    [
        ("pos_bi_fwd", "bi", -1),
        ("pos_bi_bidata", "bi", -1),
        ("pos_bi_bidata_clamp", "bi", 5),
        ("pos_uni", "uni", -1),
    ],
)
def test_relative_positions(name, attention_type, clamp_len):
    expected = UNITS[name]  # [R, B, D]
    distances = positions_lib.relative_distances(4, 10, attention_type, clamp_len)
    sine, cosine = positions_lib.sinusoid_encoding(distances, 32)
    backward = expected.shape[1] // 2 if "bidata" in name else expected.shape[1]
    for row in range(expected.shape[1]):
        sign = 1 if row < backward else -1
        ours = np.concatenate([sign * sine, cosine], -1)
        np.testing.assert_allclose(ours, expected[:, row], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "memory", "same_length"),
    [("q5_m0_std", 0, False), ("q5_m7_std", 7, False), ("q5_m7_same", 7, True), ("q5_m3_same", 3, True),
     ("q5_m0_same", 0, True)],
)  # fmt: skip
def test_causal_mask(name, memory, same_length):
    visible = masks.causal_visible(5, memory, same_length)
    np.testing.assert_array_equal(visible, UNITS[f"create_mask_{name}"] == 0)


@pytest.mark.parametrize("masked", [True, False])
def test_attention_core(masked):
    """Scores, softmax and sum over values; a query that sees nothing averages all values."""
    heads = {
        name: UNITS[f"core_{name}"].transpose(1, 2, 0, 3)
        for name in ("q_head", "k_head_h", "v_head_h", "k_head_r")
    }
    layer = RelativeAttention(32, 4, 8)
    layer.build()
    for name, theirs in {
        "content_bias": "r_w_bias",
        "position_bias": "r_r_bias",
        "segment_bias": "r_s_bias",
    }.items():
        getattr(layer.biases, name).assign(UNITS[f"core_{theirs}"])
    layer.segment_embedding.assign(UNITS["core_seg_embed"])
    view = StreamView()
    if masked:
        view = StreamView(
            mask=hide(tf.constant(UNITS["core_attn_mask"].transpose(2, 3, 0, 1) == 0)),
            other_segment=tf.constant(UNITS["core_seg_mat"][..., 1].transpose(2, 0, 1)[:, None]),
        )
    scores = layer._scores(
        heads["q_head"], tf.constant(heads["k_head_h"]), heads["k_head_r"], view, query_len=4
    )
    attended = sum_by_softmax(scores, tf.constant(heads["v_head_h"]), 0.0, None)
    expected = UNITS["core_out" if masked else "core_out_noseg_nomask"]
    np.testing.assert_allclose(attended, expected.transpose(1, 2, 0, 3), atol=1e-5)


def test_dropout_keeps_the_mean_and_its_rate():
    x = tf.ones([200, 500])
    dropped = dropout(x, 0.1, tf.constant([3, 4])).numpy()
    assert abs((dropped == 0).mean() - 0.1) < 0.005
    assert abs(dropped.mean() - 1) < 0.005
    assert dropout(x, 0.1, None) is x
    elsewhere = dropout(x, 0.1, seed_at(tf.constant([3, 4]), 1)).numpy()
    assert abs(((dropped == 0) & (elsewhere == 0)).mean() - 0.01) < 0.002


@pytest.mark.parametrize("seed", [[5, 7], [5, -7], [-5, 7], [87989972, -14503382]])
def test_dropout_drops_the_same_with_xla(seed):
    drawn = functools.partial(kept, tf.constant([3, 7]), 0.3)
    plain, compiled = (tf.function(drawn, jit_compile=xla, autograph=False) for xla in (False, True))
    np.testing.assert_array_equal(compiled(tf.constant(seed)), plain(tf.constant(seed)))


def test_dropout_of_any_shape_drops_the_same():
    def masks(size):
        return [kept(tf.stack([2, size, 7]), 0.3, tf.constant([3, place])) for place in range(3)]

    of_any = tf.function(masks, input_signature=[tf.TensorSpec([], tf.int32)])
    for size in (3, 4):
        np.testing.assert_array_equal(of_any(size), tf.function(functools.partial(masks, size))())


def test_the_feed_forward_network_drops_inside_and_behind():
    """With both weights the identity: of what goes in a quarter comes out, four times as large."""
    d_model = 64
    layer = FeedForward(d_model, d_model, activation="relu", dropout=0.5, initializer_range=0.02)
    layer.build([None, None, d_model])
    layer.set_weights([np.eye(d_model), np.zeros(d_model), np.eye(d_model), np.zeros(d_model)])
    out = layer(tf.ones([4, 50, d_model]), seed=tf.constant([3, 5])).numpy()
    assert set(np.unique(out)) == {0, 4} and (out > 0).mean() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("kind", ["cpu", "tpu"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.003, 0.999])
def test_dropout_meets_its_rate_everywhere_in_a_random_word(rate, kind):
    masks, count = 500, 8_003
    draw = tf.function(lambda seed: kept([count], rate, seed))
    with hardware.assume(kind):
        drops = ~np.stack([draw(tf.constant([5, place])) for place in range(masks)])
    # On a CPU a call has one of the two multiples of 1/256 that the rate lies between.
    of_calls = 1 / 512 / np.sqrt(masks) if kind == "cpu" else 0
    deviation = np.sqrt(rate * (1 - rate) / (masks * count / 4))
    for part in (*(drops[:, lane::4] for lane in range(4)), drops[:, : count // 4], drops[:, -count // 4 :]):
        assert abs(part.mean() - rate) < 4 * (deviation + of_calls) + 2**-17
    # Neighbours, of one word or of two, are dropped independently.
    pairs = drops[:, :-1] & drops[:, 1:]
    for lane in range(4):
        spread = np.sqrt(rate**2 * (1 - rate**2) / (masks * count / 4))
        assert abs(pairs[:, lane::4].mean() - rate**2) < 4 * (spread + 2 * rate * of_calls) + 2**-16


@pytest.mark.parametrize("kind", ["cpu", "tpu"])
def test_dropout_drops_the_same_of_the_gradient(kind):
    x = tf.random.stateless_normal([4, 5, 37], [7, 8])  # 37: neither even nor full bytes
    with hardware.assume(kind), tf.GradientTape() as tape:
        tape.watch(x)
        dropped = dropout(x, 0.3, tf.constant([1, 2]))
    gradient = tape.gradient(dropped, x).numpy()
    np.testing.assert_allclose(gradient * x, dropped, atol=1e-6)
    assert set(np.unique(gradient.round(4))) == {0, np.float32(1 / 0.7).round(4)}


@pytest.mark.parametrize("kind", ["cpu", "tpu"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_gradient_of_the_sum_by_softmax(dtype, kind):
    rng = np.random.default_rng(0)
    scores, values, upstream = (
        tf.constant(rng.normal(size=size).astype(np.float32))
        for size in ([2, 3, 5, 7], [2, 3, 7, 4], [2, 3, 5, 4])
    )
    values, upstream = tf.cast(values, dtype), tf.cast(upstream, dtype)
    seed = tf.constant([1, 2])

    def plain(scores, values):
        values = tf.cast(values, tf.float32)
        return tf.matmul(dropout(tf.nn.softmax(scores), 0.3, seed), values)

    def ours(scores, values):
        return sum_by_softmax(scores, values, 0.3, seed)

    results = []
    for function in (plain, ours):
        with hardware.assume(kind), tf.GradientTape() as tape:
            tape.watch([scores, values])
            result = tf.cast(function(scores, values), dtype)
        results.append([result, *tape.gradient(result, [scores, values], upstream)])
    for expected, got in zip(*results):
        tolerance = 1e-6 if dtype == tf.float32 else 0.03
        np.testing.assert_allclose(tf.cast(got, tf.float32), tf.cast(expected, tf.float32), atol=tolerance)


@pytest.mark.parametrize("sizes", [(5, 3, 7), (5, 7, 3)])
def test_weights_turned_for_the_gradient_give_the_same(sizes):
    rows, width, result_width = sizes
    tensors = [
        tf.random.stateless_normal(shape, [1, 2])
        for shape in ([rows, width], [width, result_width], [result_width], [rows, result_width])
    ]

    @tf.function
    def result_and_gradients(training, *tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors[:3])
            result = affine(*tensors[:3], training=training)
        return result, *tape.gradient(result, tensors[:3], tensors[3])

    for expected, got in zip(*(result_and_gradients(training, *tensors) for training in (False, True))):
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_products_of_one_head_stay_within_their_operands():
    """oneDNN's broadcast product does not: it crashed, or gave numbers from beyond the end."""
    rng = np.random.default_rng(0)
    for heads in (1, 2):
        for _ in range(60):
            rows = rng.normal(size=[3, heads, 9, 8]).astype(np.float32)
            keys = rng.normal(size=[1, heads, 18, 8]).astype(np.float32)
            expected = rows @ keys.transpose(0, 1, 3, 2)
            np.testing.assert_allclose(multiply_by_head(rows, keys, transpose_b=True), expected, atol=1e-4)
            column = keys[:, :, :1].transpose(0, 1, 3, 2)
            np.testing.assert_allclose(multiply_by_head(rows, column), rows @ column, atol=1e-4)
            shared = keys[:, :1]  # by all heads
            expected = rows @ shared.transpose(0, 1, 3, 2)
            np.testing.assert_allclose(multiply_by_head(rows, shared, transpose_b=True), expected, atol=1e-4)


@pytest.mark.parametrize("transpose", [False, True])
def test_weights_are_multiplied_alike_for_all_hardware(transpose):
    rng = np.random.default_rng(0)
    rows = tf.constant(rng.normal(size=[5, 6]), tf.bfloat16)
    weights = tf.Variable(rng.normal(size=[4, 6] if transpose else [6, 4]).astype(np.float32))
    upstream = tf.constant(rng.normal(size=[5, 4]), tf.bfloat16)
    found = []
    for kind in ("cpu", "tpu"):
        with hardware.assume(kind), tf.GradientTape() as tape:
            tape.watch(rows)
            product = multiply_by_weights(rows, weights, transpose)
        found.append([product, *tape.gradient(product, [rows, weights], upstream)])
        assert [value.dtype for value in found[-1]] == [tf.bfloat16, tf.bfloat16, tf.float32]
    for expected, other in zip(*found):
        np.testing.assert_array_equal(expected.numpy(), other.numpy())
    wide = tf.matmul(tf.cast(rows, tf.float32), weights, transpose_b=transpose)
    np.testing.assert_allclose(tf.cast(found[0][0], tf.float32), wide, atol=0.1)

"""The layers' pieces equal the original's functions on its numeric fixtures."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.models.original import load_case
from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers import masks
from xlnet_tf.layers.attention import AttentionWeights, attention_scores
from xlnet_tf.layers.block import FeedForward, gelu
from xlnet_tf.layers.kernels import current, position_shift
from xlnet_tf.layers.kernels.cpu_graph import CpuGraphKernels
from xlnet_tf.layers.kernels.reference import ReferenceKernels
from xlnet_tf.layers.kernels.tpu import TpuKernels
from xlnet_tf.layers.masks import AttentionContext, attention_bias
from xlnet_tf.layers.positions import RelativePositions

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
    np.testing.assert_array_equal(position_shift.shift_by_row(tf.constant(scores), 12), expected)
    order = np.int32([[3, 0, 4], [1, 1, 2]])
    picked = np.stack([scores[b][:, order[b]] for b in range(2)])
    shifted = position_shift.shift_by_position(tf.constant(picked), tf.constant(order), 5, 12, training=True)
    np.testing.assert_array_equal(shifted, np.stack([expected[b][:, order[b]] for b in range(2)]))


def test_gradient_of_the_shift():
    scores = tf.Variable(np.random.default_rng(0).normal(size=[2, 3, 5, 17]).astype(np.float32))
    weights = np.random.default_rng(1).normal(size=[2, 3, 5, 12]).astype(np.float32)
    in_order = tf.tile(tf.range(5)[None], [2, 1])
    gradients = []
    for shift in (
        lambda: position_shift.shift_by_row(scores, 12),
        lambda: position_shift.shift_by_position(scores, in_order, 5, 12, training=True),
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
    expected = UNITS[name].transpose(1, 0, 2)  # [B, R, D]
    direction = tf.repeat([1, -1], len(expected) // 2) if "bidata" in name else None
    positions = RelativePositions.of_step(32, 4, 10, attention_type, clamp_len, direction)
    np.testing.assert_allclose(np.broadcast_to(positions.encoding(), expected.shape), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "memory", "same_length"),
    [("q5_m0_std", 0, False), ("q5_m7_std", 7, False), ("q5_m7_same", 7, True), ("q5_m3_same", 3, True),
     ("q5_m0_same", 0, True)],
)  # fmt: skip
def test_causal_mask(name, memory, same_length):
    visible = masks.causal_visible(5, memory, same_length)
    np.testing.assert_array_equal(visible, UNITS[f"create_mask_{name}"] == 0)


@pytest.mark.parametrize(
    "kernels", [ReferenceKernels(), CpuGraphKernels(training=False), TpuKernels(training=False)]
)
@pytest.mark.parametrize("masked", [True, False])
def test_attention_core(masked, kernels):
    """Scores, softmax and sum over values; a query that sees nothing averages all values."""
    heads = {
        name: UNITS[f"core_{name}"].transpose(1, 2, 0, 3)
        for name in ("q_head", "k_head_h", "v_head_h", "k_head_r")
    }
    weights = AttentionWeights(
        *[None] * 5,
        content_bias=UNITS["core_r_w_bias"],
        position_bias=UNITS["core_r_r_bias"],
        segment_bias=UNITS["core_r_s_bias"],
        segment_embedding=UNITS["core_seg_embed"],
    )
    context = AttentionContext(query_len=4, key_len=heads["k_head_h"].shape[2])
    if masked:
        context = context._replace(
            bias=attention_bias(tf.constant(UNITS["core_attn_mask"].transpose(2, 3, 0, 1) == 0)),
            segment_mismatch=tf.constant(UNITS["core_seg_mat"][..., 1].transpose(2, 0, 1)[:, None]),
        )
    queries, keys, values, positions = (
        tf.constant(heads[name]) for name in ("q_head", "k_head_h", "v_head_h", "k_head_r")
    )
    scores = attention_scores(weights, queries, keys, positions, context, kernels)
    attended = kernels.softmax_sum(scores, values, 0.0, None)
    expected = UNITS["core_out" if masked else "core_out_noseg_nomask"]
    np.testing.assert_allclose(attended, expected.transpose(1, 2, 0, 3), atol=1e-5)


def test_the_feed_forward_network_drops_inside_and_behind():
    """With both weights the identity: of what goes in a quarter comes out, four times as large."""
    d_model = 64
    config = XLNetConfig.preset("micro", d_model=d_model, d_inner=d_model, ff_activation="relu")
    layer = FeedForward(config, dropout=0.5)
    layer.build([None, None, d_model])
    layer.set_weights([np.eye(d_model), np.zeros(d_model), np.eye(d_model), np.zeros(d_model)])
    kernels, seed = current(training=True), tf.constant([3, 5])
    weights = layer.feed_forward_weights
    out = layer(tf.ones([4, 50, d_model]), weights=weights, kernels=kernels, seed=seed).numpy()
    assert set(np.unique(out)) == {0, 4} and (out > 0).mean() == pytest.approx(0.25, abs=0.02)

"""The pooled vector: the original's values, and what must hold for any padding."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.models import original
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers.summary import METHODS, SequenceSummary

D = 12
CONFIG = XLNetConfig.preset("micro", d_model=D, n_head=2, d_head=5)


def random_summary(method, **options):
    tf_keras.utils.set_random_seed(0)
    summary = SequenceSummary(CONFIG, 0.4, method, **options)
    summary.build()
    return summary


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("projection", [True, False])
def test_equals_the_originals(method, projection):
    case, _ = original.load_case("summary")
    checkpoint = open_checkpoint(str(original.GOLDEN / "tiny_ckpt_heads"))
    config = checkpoint.config
    summary = SequenceSummary(config, method=method, projection=projection, pool_padding=True, name="summary")
    with tf.name_scope("summary"):
        summary.build()
    for name, variable in original.variables(summary).items():
        variable.assign(checkpoint.arrays[name])
    pooled = summary(case["output"].transpose(1, 0, 2), 1 - case["input_mask"].T)
    expected = case[f"pooled_{method}_{'proj' if projection else 'noproj'}"]
    np.testing.assert_allclose(pooled, expected, atol=2e-5, rtol=1e-5)


def random_inputs(rng, side):
    tokens, mask = rng.normal(size=[3, 6, D]).astype(np.float32), np.zeros([3, 6], np.uint8)
    texts = [rng.normal(size=[length, D]) for length in (1, 3, 6)]
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if side == "right" else slice(6 - len(text), 6)
        tokens[row, place], mask[row, place] = text, 1
    return tokens, mask, texts


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", METHODS)
def test_sees_the_tokens_only(method, side):
    summary = random_summary(method)
    tokens, mask, texts = random_inputs(np.random.default_rng(0), side)
    alone = [summary(text[None].astype(np.float32))[0] for text in texts]
    np.testing.assert_allclose(summary(tokens, mask), alone, atol=1e-5)
    assert np.isfinite(summary(tokens, np.zeros_like(mask))).all()


def test_what_each_kind_is():
    tokens, mask, texts = random_inputs(np.random.default_rng(1), "left")
    for method, of_text, of_row in (
        ("last", [text[-1] for text in texts], tokens[:, -1]),
        ("first", [text[0] for text in texts], tokens[:, 0]),
        ("mean", [text.mean(axis=0) for text in texts], tokens.mean(axis=1)),
    ):
        summary = random_summary(method, projection=False)
        np.testing.assert_allclose(summary(tokens, mask), np.float32(of_text), atol=1e-6)
        summary = random_summary(method, projection=False, pool_padding=True)
        with summary.without_padding():
            np.testing.assert_allclose(summary(tokens, mask), np.float32(of_text), atol=1e-6)
        np.testing.assert_allclose(summary(tokens, mask), of_row, atol=1e-6)


def test_weights_begin_small():
    """Normal with the deviation that was asked for; the original's 0.02 is the default elsewhere."""
    summary = SequenceSummary(CONFIG, 0.003, "attn")
    summary.build([None, None, D])
    kernels = [w.numpy() for w in summary.trainable_weights if w.shape.rank > 1]
    assert kernels and all(0 < np.abs(kernel).max() < 6 * 0.003 for kernel in kernels)

"""The recorded probabilities are those that the layers compute with."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.serving.toys import built
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.models.attention_maps import attention_maps
from xlnet_tf.models.pretrainer import XLNetPretrainer

RANKS = [[0, 3, 1, 0, 2, 4], [2, 0, 0, 1, 0, 0]]
FEATURES = {
    "input_word_ids": tf.constant([[7, 8, 9, 10, 11, 12], [13, 14, 15, 16, 17, 5]]),
    "input_mask": tf.constant([[1] * 6, [1] * 5 + [0]]),
    "input_type_ids": tf.constant([[0, 0, 0, 1, 1, 1], [0] * 6]),
    "permutation_rank": tf.constant(RANKS),
    "target_mask": tf.constant(RANKS) > 0,
}


@pytest.fixture(scope="module")
def encoder(small_tokenizer):
    return built(XLNetPretrainer, small_tokenizer, layers=2).encoder


def test_probabilities_times_values_are_the_attention_of_each_layer(encoder):
    maps = attention_maps(encoder, FEATURES)
    outputs = encoder(FEATURES, training=False)
    contents = [tf.gather(encoder.word_embedding, FEATURES["input_word_ids"]), *outputs["encoder_outputs"]]
    query = tf.where(FEATURES["target_mask"][:, :, None], encoder.mask_embedding, contents[0])
    kernels = kernels_lib.current(training=False)
    others = {"kernels": kernels, "seed": None}
    positions, _ = encoder._positions(FEATURES, 6, 6, kernels, None)
    contexts = encoder._contexts(FEATURES, kernels, positions, 6, 0, None, None, False)
    for layer, block in enumerate(encoder.blocks):
        content = contents[layer]
        weights = block.attention.attention_weights
        streams = block.attention(content, query, None, positions, *contexts, weights=weights, **others)
        for probabilities, attended in zip((maps.content, maps.query), streams, strict=True):
            values = np.einsum("bkd,dnh->bnkh", content, weights.value)
            expected = np.einsum("bnqk,bnkh,dnh->bqd", probabilities[layer], values, weights.output)
            np.testing.assert_allclose(attended, expected, atol=1e-5)
        weights = block.block_weights
        content, query = block(content, query, None, positions, *contexts, weights=weights, **others)
    np.testing.assert_allclose(query, outputs["query_output"], atol=1e-5)


def test_rows_sum_to_one_where_something_is_visible(encoder):
    features = {**FEATURES, "permutation_rank": tf.constant([[1, 2, 3, 4, 5, 6]] * 2)}
    features |= {"target_mask": tf.ones([2, 6], tf.bool)}
    content, query = attention_maps(encoder, features)
    np.testing.assert_allclose(tf.reduce_sum(content, -1), 1.0, atol=1e-5)
    sums = tf.reduce_sum(query, -1).numpy()
    np.testing.assert_allclose(sums[..., 1:], 1.0, atol=1e-5)
    assert not sums[..., 0].any()  # the first of an order sees nothing
    assert not np.triu(query[0, 0, 0]).any()


def test_one_stream_has_no_query_maps(encoder):
    maps = attention_maps(encoder, {"input_word_ids": FEATURES["input_word_ids"]})
    assert maps.query is None
    assert maps.content.shape == [2, 2, 2, 6, 6]


@pytest.mark.parametrize("positions", [[5], [5, 4, 3, 2, 1, 0]])
def test_maps_of_all_tokens_whatever_output_positions_choose(encoder, positions):
    features = {"input_word_ids": FEATURES["input_word_ids"]}
    maps = attention_maps(encoder, {**features, "output_positions": tf.constant([positions] * 2)})
    np.testing.assert_allclose(maps.content, attention_maps(encoder, features).content, atol=1e-6)

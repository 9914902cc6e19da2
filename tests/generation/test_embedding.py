"""Vectors of texts: padding and neighbours do not matter, and the mean is of the text alone."""

import dataclasses

import numpy as np
import pytest

from tests.helpers.models.heads import CONFIG, random_texts
from xlnet_tf.generation.arrays.embedding import embed_texts
from xlnet_tf.generation.embedding import embed
from xlnet_tf.generation.graphs import EncoderGraphs
from xlnet_tf.models.encoder import XLNetEncoder


@pytest.fixture(scope="module")
def encoder():
    encoder = XLNetEncoder(CONFIG, initializer_range=0.4)
    encoder.build()
    return encoder


def test_pools_the_text_and_nothing_else(encoder):
    features = random_texts(np.random.default_rng(0))
    vectors = embed(encoder, features)
    outputs = encoder(features)["sequence_output"].numpy()
    for row, ids in enumerate(features["input_word_ids"]):
        text = np.isin(ids, [3, 4, 5], invert=True)
        np.testing.assert_allclose(vectors.mean[row], outputs[row, text].mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(vectors.cls[row], outputs[row, ids == 3][0], atol=1e-5)
        np.testing.assert_allclose(vectors.tokens[row], outputs[row] * (ids != 5)[:, None], atol=1e-5)


def test_an_empty_text_is_zero_and_finite(encoder):
    features = {
        "input_word_ids": np.int32([[5, 4, 3], [5, 5, 5]]),
        "input_mask": np.int32([[0, 1, 1], [0, 0, 0]]),
        "input_type_ids": np.int32([[4, 0, 2], [4, 4, 4]]),
    }
    vectors = embed(encoder, features)
    assert not vectors.mean.numpy().any()
    assert np.isfinite(vectors.cls).all() and vectors.cls.numpy()[0].any()


def test_takes_any_layer():
    encoder = XLNetEncoder(dataclasses.replace(CONFIG, n_layer=2), initializer_range=0.4)
    encoder.build()
    features = random_texts(np.random.default_rng(2))
    outputs = encoder(features)["encoder_outputs"]
    mask = features["input_mask"][:, :, None]
    for layer in (0, 1, -1):
        np.testing.assert_allclose(embed(encoder, features, layer).tokens, outputs[layer] * mask, atol=1e-5)


def test_reads_lists_of_texts(small_tokenizer):
    config = dataclasses.replace(CONFIG, n_token=small_tokenizer.vocab_size)
    encoder = XLNetEncoder(config, initializer_range=0.4)
    graphs = EncoderGraphs(encoder)
    texts = ["bane tor", "", "kalsu remi do 12, nekal", "  ", "mi"]
    expected = embed(encoder, small_tokenizer(texts, seq_len=40))
    for batch_size in (1, 3):
        found = embed_texts(graphs, small_tokenizer, texts, tokens=True, batch_size=batch_size)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-5)
        np.testing.assert_allclose(found.cls, expected.cls, atol=1e-5)
        for row, text in enumerate(texts):
            ids = small_tokenizer.encode(text)
            assert found.pieces[row] == [*map(small_tokenizer.id_to_piece, ids), "<sep>", "<cls>"]
            np.testing.assert_allclose(found.tokens[row], expected.tokens[row, -len(ids) - 2 :], atol=1e-5)
    assert embed_texts(graphs, small_tokenizer, texts).tokens is None

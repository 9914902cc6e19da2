"""Reading in segments: what memory carries, and what it must not."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.models import heads
from tests.helpers.profiles import mostly_integration
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.reading import encode_long, packed_source

LENGTH = 4


def random_encoder(n_layer=1, **options):
    tf_keras.utils.set_random_seed(0)
    options = {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.4, **options}
    encoder = XLNetEncoder(dataclasses.replace(heads.CONFIG, n_layer=n_layer), **options)
    encoder.build()
    return encoder


@pytest.mark.parametrize("way", ["at once", "in segments", "packed"])
def test_output_positions_choose_vectors(way):
    rng = np.random.default_rng(3)
    features = heads.random_texts(rng, length=3 * LENGTH)
    batch = len(features["input_word_ids"])
    encoder = random_encoder(2, memory_len=6)
    segment_len = LENGTH if way == "in segments" else 0
    if way == "packed":
        lengths = features["input_mask"].sum(axis=1).astype(np.int32)
        starts = (np.cumsum(lengths) - lengths).astype(np.int32)[:, None]
        features |= {
            "packed_start": starts,
            "packed_source": packed_source(starts, tf.constant(features["input_mask"]), batch),
        }
    positions = np.array([np.flatnonzero(row)[[0, -1, 1]] for row in features["input_mask"]])
    expected = tf.gather(encode_long(encoder, features, segment_len), positions, batch_dims=1)
    features["output_positions"] = positions.astype(np.uint8)
    found = encode_long(encoder, features, segment_len)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if way == "in segments":  # beyond the numbers of a small type
        ids = rng.integers(9, 50, [1, 384])
        features = {"input_word_ids": ids, "output_positions": tf.constant([[200, 3]], tf.uint8)}
        expected = tf.gather(encode_long(encoder, {"input_word_ids": ids}, 128), [200, 3], axis=1)
        np.testing.assert_allclose(encode_long(encoder, features, 128), expected, atol=1e-5)


def test_targets_and_output_positions_exclude_each_other():
    features = {"input_word_ids": [[7, 8, 9]], "target_mask": [[1, 0, 0]], "output_positions": [[0]]}
    with pytest.raises(UserError, match="output_positions choose tokens of a single stream"):
        random_encoder()({name: tf.constant(value) for name, value in features.items()})


@pytest.mark.parametrize("empty", [1, pytest.param(2, marks=pytest.mark.integration)])
def test_empty_segments_change_nothing(empty):
    features = heads.random_texts(np.random.default_rng(2), length=8)
    encoder = random_encoder(memory_len=6)
    expected = encode_long(encoder, features, LENGTH)
    width = empty * LENGTH
    for before in (0, width):
        pads = {"input_word_ids": heads.PAD, "input_type_ids": 4, "input_mask": 0}
        padded = {
            name: np.pad(value, [[0, 0], [before, width - before]], constant_values=pads[name])
            for name, value in features.items()
        }
        got = encode_long(encoder, padded, LENGTH)[:, before : before + 8]
        mask = features["input_mask"].astype(bool)
        np.testing.assert_allclose(got[mask], expected[mask], atol=1e-5)


def gradients(encoder, ids, segment_len, memory_gradient=0, compiled=False):
    """Returns the gradients of a loss on the vectors of the last segment, by variable."""
    weights = tf.random.stateless_normal([len(ids), LENGTH, heads.CONFIG.d_model], [1, 2])

    def compute():
        with tf.GradientTape() as tape:
            found = encode_long(encoder, {"input_word_ids": ids}, segment_len, True, memory_gradient)
            loss = tf.reduce_sum(weights * found[:, -LENGTH:])
        return loss, tape.gradient(loss, encoder.trainable_variables, unconnected_gradients="zero")

    loss, found = (tf.function(compute, jit_compile=True) if compiled else compute)()
    return loss, [tf.convert_to_tensor(gradient) for gradient in found]


@pytest.mark.parametrize(
    ("recompute", "compiled"),
    [
        (True, False),
        ("cheap", False),
        pytest.param(False, False, marks=pytest.mark.integration),
        pytest.param(True, True, marks=pytest.mark.integration),
        pytest.param("cheap", True, marks=pytest.mark.integration),
    ],
)
def test_gradient_through_all_memory_is_that_of_reading_at_once(recompute, compiled):
    ids = np.random.default_rng(6).integers(9, 50, [2, 12])
    whole = gradients(random_encoder(attention_type="uni"), ids, 0)
    encoder = random_encoder(attention_type="uni", memory_len=8, recompute=recompute)
    loss, found = gradients(encoder, ids, LENGTH, 2, compiled)
    np.testing.assert_allclose(loss, whole[0], rtol=1e-5)
    for variable, ours, expected in zip(encoder.trainable_variables, found, whole[1]):
        np.testing.assert_allclose(ours, expected, atol=2e-5, rtol=1e-3, err_msg=variable.name)
    _, cut = gradients(encoder, ids, LENGTH, 1)
    assert not all(np.allclose(ours, expected, rtol=1e-2) for ours, expected in zip(cut, whole[1]))


@pytest.mark.parametrize("memory_gradient", [pytest.param(0, marks=pytest.mark.integration), 1])
def test_memory_changes_gradients_and_not_vectors(memory_gradient):
    """The gradient of all segments is that of blocks that take the memory before them as a constant."""
    features = heads.random_texts(np.random.default_rng(8), length=20)
    encoder = random_encoder(memory_len=6)
    weights = tf.random.stateless_normal([heads.B, 20, heads.CONFIG.d_model], [3, 4])
    with tf.GradientTape() as tape:
        vectors = encode_long(encoder, features, LENGTH, memory_gradient=memory_gradient)
        loss = tf.reduce_sum(weights * vectors)
    ours = tape.gradient(loss, encoder.trainable_variables, unconnected_gradients="zero")

    expected = [tf.zeros(variable.shape) for variable in encoder.trainable_variables]
    memory, first = {}, 0
    for last in range((5 - 1) % (memory_gradient + 1), 5, memory_gradient + 1):  # of each block
        with tf.GradientTape() as tape:
            losses = []
            for segment in range(first, last + 1):
                part = slice(segment * LENGTH, (segment + 1) * LENGTH)
                inputs = {name: value[:, part] for name, value in features.items()}
                outputs = encoder({**inputs, **memory}, memory_gradient=True)
                memory = {name: outputs[f"next_{name}"] for name in ("memory", "memory_mask")}
                losses.append(tf.reduce_sum(weights[:, part] * outputs["sequence_output"]))
                np.testing.assert_allclose(outputs["sequence_output"], vectors[:, part], atol=1e-5)
        of_block = tape.gradient(losses, encoder.trainable_variables, unconnected_gradients="zero")
        expected = [total + gradient for total, gradient in zip(expected, of_block)]
        memory = {name: tf.constant(value.numpy()) for name, value in memory.items()}
        first = last + 1
    for variable, one, other in zip(encoder.trainable_variables, map(tf.convert_to_tensor, ours), expected):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-3, err_msg=variable.name)


@pytest.mark.parametrize(
    "kind",
    mostly_integration(["span", "classifier_mean", "regressor", "choice", "ranker", "tagger"], "span"),
)
def test_any_head_left_to_right_with_all_memory_is_that_of_whole_texts(kind):
    """Its outputs and its gradients."""
    features = heads.random_features(kind, np.random.default_rng(9), side="right")
    del features["input_type_ids"]  # memory counts as segment 0
    results = []
    for segment_len in (0, LENGTH):
        model = heads.random_head(kind, attention_type="uni")
        model.segment_len, model.memory_gradient, model.encoder.memory_len = segment_len, 2, 12
        with tf.GradientTape() as tape:
            outputs = model(features, training=False)
            numbers = [tf.sin(v) for v in tf.nest.flatten(outputs) if v.dtype.is_floating]
            loss = tf.add_n(list(map(tf.reduce_sum, numbers)))
        found = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
        results.append((heads.arrays(outputs), list(map(tf.convert_to_tensor, found))))
    (whole, expected), (outputs, found) = results
    heads.assert_equal(outputs, whole, atol=2e-5)
    for variable, one, other in zip(model.trainable_variables, found, expected):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-3, err_msg=variable.name)


def test_segments_drop_out_differently_and_by_seed():
    ids = np.tile(np.random.default_rng(4).integers(9, 50, [1, LENGTH]), [1, 2])
    encoder = random_encoder(memory_len=1, dropout=0.5)
    features = {"input_word_ids": ids, "dropout_seed": tf.constant([1, 2])}
    first, again = (encode_long(encoder, features, LENGTH, training=True) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    dropped = (first[0].numpy() == 0).reshape(2, LENGTH, -1)
    assert dropped.any() and (dropped[0] != dropped[1]).any()


def test_what_cannot_be_read_in_segments_is_refused():
    features = heads.random_texts(np.random.default_rng(5))
    with pytest.raises(UserError, match="segments of 4 tokens by an encoder without memory"):
        encode_long(random_encoder(), features, LENGTH)
    with pytest.raises(UserError, match="texts of 12 tokens are to be read in segments of 5"):
        encode_long(random_encoder(memory_len=4), features, 5)

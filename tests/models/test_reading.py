"""Reading in segments: what memory carries, and what it must not."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.models import heads
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.reading import encode_long

LENGTH = 4


def random_encoder(**options):
    tf_keras.utils.set_random_seed(0)
    options = {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.4, **options}
    encoder = XLNetEncoder(heads.CONFIG, **options)
    encoder.build()
    return encoder


def test_one_segment_is_plain_reading():
    features = heads.random_texts(np.random.default_rng(0))
    plain = encode_long(random_encoder(), features)
    np.testing.assert_array_equal(plain, random_encoder()(features)["sequence_output"])
    np.testing.assert_allclose(encode_long(random_encoder(memory_len=5), features, heads.T), plain, atol=1e-6)


def test_left_to_right_with_memory_of_everything_is_reading_at_once():
    ids = np.random.default_rng(1).integers(9, 50, [2, 12])
    whole = encode_long(random_encoder(attention_type="uni"), {"input_word_ids": ids})
    encoder = random_encoder(attention_type="uni", memory_len=8)
    np.testing.assert_allclose(encode_long(encoder, {"input_word_ids": ids}, LENGTH), whole, atol=1e-5)


@pytest.mark.parametrize("empty", [1, 2])
def test_empty_segments_change_nothing(empty):
    """Segments of padding before the text, and after it."""
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


@pytest.mark.parametrize("memory_len", [2, 4, 8])
def test_memory_reaches_back_by_its_length(memory_len):
    """With one layer, a token is felt in later segments while it is in the memory, and never before."""
    ids = np.random.default_rng(3).integers(9, 50, [1, 12])
    encoder = random_encoder(memory_len=memory_len)
    before = encode_long(encoder, {"input_word_ids": ids}, LENGTH)[0].numpy()
    for place in range(12):
        other = ids.copy()
        other[0, place] += 1
        after = encode_long(encoder, {"input_word_ids": other}, LENGTH)[0].numpy()
        felt = (np.abs(after - before).max(axis=1) > 1e-6).reshape(3, LENGTH).all(axis=1)
        own = place // LENGTH
        expected = [
            segment == own or (segment > own and place >= segment * LENGTH - memory_len)
            for segment in range(3)
        ]
        np.testing.assert_array_equal(felt, expected, err_msg=str(place))


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

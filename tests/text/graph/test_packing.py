"""Rows packed in a graph are those that Python packs one by one."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from tests.helpers.profiles import examples
from xlnet_tf.text import packing
from xlnet_tf.text.graph.packing import bucket, pack, truncate
from xlnet_tf.text.special_tokens import PAD_ID

IDS = strategies.lists(strategies.integers(10, 99), max_size=20)
PAIRS = strategies.lists(strategies.tuples(IDS, IDS), max_size=5)
RAGGED = tf.RaggedTensorSpec([None, None], tf.int32)


def ragged(rows):
    values = np.array([value for row in rows for value in row], np.int32)
    return tf.RaggedTensor.from_row_lengths(values, np.array([len(row) for row in rows], np.int64))


@tf.function(input_signature=[RAGGED, RAGGED, tf.TensorSpec([], tf.int32)], autograph=False)
def pack_all_ways(ids_a, ids_b, seq_len):
    """[texts or pairs][left or right], of a length that is known only when it runs."""
    return [
        [pack(ids_a, second, seq_len=seq_len, padding=side) for side in packing.PADDING_SIDES]
        for second in (None, ids_b)
    ]


@tf.function(input_signature=[RAGGED, RAGGED, tf.TensorSpec([None], tf.int32)], autograph=False)
def truncate_rows(ids_a, ids_b, room):
    return truncate(ids_a, ids_b, room), truncate(ids_a, None, room)[0]


@examples(25, 1000)
@hypothesis.given(PAIRS, strategies.integers(4, 50))
def test_rows_are_those_of_python(pairs, seq_len):
    ids_a, ids_b = [a for a, _ in pairs], [b for _, b in pairs]
    found = pack_all_ways(ragged(ids_a), ragged(ids_b), seq_len)
    for seconds, sides in zip(([None] * len(pairs), ids_b), found, strict=True):
        for side, features in zip(packing.PADDING_SIDES, sides, strict=True):
            rows = [packing.pack(a, b, seq_len=seq_len, padding=side) for a, b in zip(ids_a, seconds)]
            ids = np.array([row.input_ids for row in rows]).reshape(-1, seq_len)
            segments = np.array([row.segment_ids for row in rows]).reshape(-1, seq_len)
            np.testing.assert_array_equal(features["input_word_ids"], ids)
            np.testing.assert_array_equal(features["input_mask"], ids != PAD_ID)
            np.testing.assert_array_equal(features["input_type_ids"], segments)
            assert {feature.dtype for feature in features.values()} == {tf.int32}


@examples(40, 1000)
@hypothesis.given(strategies.lists(strategies.tuples(IDS, IDS, strategies.integers(1, 45)), max_size=5))
def test_each_row_has_a_room_of_its_own(rows):
    ids_a, ids_b, room = ([row[column] for row in rows] for column in range(3))
    (found_a, found_b), alone = truncate_rows(ragged(ids_a), ragged(ids_b), np.array(room, np.int32))
    expected = [packing.truncated(a, b, room + 3) for a, b, room in rows]
    assert found_a.to_list() == [a for a, _, _ in expected]
    assert found_b.to_list() == [b for _, b, _ in expected]
    assert alone.to_list() == [a[:room] for a, _, room in rows]


def test_a_length_known_beforehand_is_the_shape():
    features = pack(ragged([[10, 11], []]), seq_len=6)
    assert {tuple(feature.shape) for feature in features.values()} == {(2, 6)}
    function = tf.function(lambda ids: pack(ids, seq_len=6), input_signature=[RAGGED])
    assert function.get_concrete_function().structured_outputs["input_word_ids"].shape.as_list() == [None, 6]


@pytest.mark.parametrize(
    ("lengths", "expected"), [([3], 8), ([8, 2], 8), ([9, 2], 16), ([16], 16), ([40], 32), ([], 8)]
)
def test_the_smallest_bucket_that_holds_the_longest_row(lengths, expected):
    assert int(bucket(tf.constant(lengths, tf.int32), [8, 16, 32])) == expected

"""Packed sequences have the original's layout, and lose no more text than they must."""

import json

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from xlnet_tf.errors import UserError
from xlnet_tf.text.graph import packing as graph_packing
from xlnet_tf.text.packing import PAD_SEGMENT, pack, truncated
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID, UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

IDS = strategies.lists(strategies.integers(10, 99), max_size=20)


def test_the_golden_features_of_the_original(shared):
    golden = np.load(shared("golden/cases/data_classifier_features.npz"))
    meta = json.loads(str(golden["meta_json"]))
    tokenizer = XLNetTokenizer(shared(f"golden/data/{meta['sp']}"))
    examples = [example for example in meta["examples"] if example]
    assert len(examples) == 4
    for row, example in enumerate(examples):
        pair = None if example["text_b"] is None else tokenizer.encode(example["text_b"])
        packed = pack(tokenizer.encode(example["text_a"]), pair, seq_len=meta["max_seq_length"])
        padding = packed.input_ids == PAD_ID
        np.testing.assert_array_equal(padding, golden["input_mask"][row] == 1)
        np.testing.assert_array_equal(np.where(padding, UNK_ID, packed.input_ids), golden["input_ids"][row])
        np.testing.assert_array_equal(packed.segment_ids, golden["segment_ids"][row])


@hypothesis.given(IDS, strategies.none() | IDS, strategies.integers(4, 50), strategies.booleans())
def test_a_sequence_is_its_texts_its_symbols_and_padding(ids_a, ids_b, seq_len, left):
    packed = pack(ids_a, ids_b, seq_len=seq_len, padding="left" if left else "right")
    kept_a, kept_b, dropped = truncated(ids_a, ids_b, seq_len)
    tokens = [*kept_a, SEP_ID] + ([] if kept_b is None else [*kept_b, SEP_ID]) + [CLS_ID]
    segments = [0] * (len(kept_a) + 1) + ([] if kept_b is None else [1] * (len(kept_b) + 1)) + [2]
    count = seq_len - len(tokens)
    assert count >= 0
    assert not (dropped and count)
    for found, expected, pad in (
        (packed.input_ids, tokens, PAD_ID),
        (packed.segment_ids, segments, PAD_SEGMENT),
    ):
        padding = [pad] * count
        assert found.tolist() == (padding + expected if left else expected + padding)


@hypothesis.given(IDS, IDS, strategies.integers(4, 50))
def test_pairs_are_cut_as_the_original_cuts_them(ids_a, ids_b, seq_len):
    """Its _truncate_seq_pair pops from the longer one."""
    expected = list(ids_a), list(ids_b)
    while len(expected[0]) + len(expected[1]) > seq_len - 3:
        expected[len(expected[0]) <= len(expected[1])].pop()
    kept_a, kept_b, dropped = truncated(ids_a, ids_b, seq_len)
    assert (list(kept_a), list(kept_b)) == expected
    assert dropped == len(ids_a) + len(ids_b) - len(kept_a) - len(kept_b)


def test_a_single_text_is_cut_at_its_end():
    assert truncated([10, 11, 12, 13], None, 5) == ([10, 11, 12], None, 1)
    assert pack([10, 11, 12, 13], seq_len=5).input_ids.tolist() == [10, 11, 12, SEP_ID, CLS_ID]


@pytest.mark.parametrize(
    ("pack", "ids"), [(pack, [10]), (graph_packing.pack, tf.ragged.constant([[10]]))], ids=["python", "graph"]
)
def test_impossible_settings_are_named(pack, ids):
    for second, options, message in (
        (None, {"seq_len": 2}, "seq_len is 2, which leaves no room"),
        (ids, {"seq_len": 3}, "seq_len is 3"),
        (None, {"seq_len": 8, "padding": "middle"}, "'middle'; expected one of left, right"),
    ):
        with pytest.raises(UserError, match=message):
            pack(ids, second, **options)

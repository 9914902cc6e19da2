"""Gaps are read and filled as in a graph."""

import numpy as np
import tensorflow as tf

from xlnet_tf.generation import gap_parsing
from xlnet_tf.generation.arrays import gaps
from xlnet_tf.text.graph.tokenizer import GraphTokenizer

TEXTS = [
    "ba <mask> <mask> tor", "<mask>", "ne <mask> mi kal su <mask> ren do <mask>", "<mask>ba", "ba<mask>ba",
    "<mask><mask>", "<mask> , 12,<mask>3", "<eop> ba <mask><eop>ne", "ba<mask>\x0bne <mask>\u2003su<mask>\n",
    "\u00e9<mask>\u0301 <mask>\ufffd", " <mask> ",
]  # fmt: skip


def test_ids_and_gaps_are_those_of_the_graph(small_tokenizer):
    orders = gaps.check_gaps(TEXTS)
    found = gaps.read_gaps(small_tokenizer, TEXTS, orders)
    expected, _ = gap_parsing.gaps(GraphTokenizer(small_tokenizer), tf.constant(TEXTS))
    for name in found._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def test_filled_texts_are_those_of_the_graph(small_tokenizer):
    found = gaps.read_gaps(small_tokenizer, TEXTS, [[*order][::-1] for order in gaps.check_gaps(TEXTS)])
    tokens = (
        np.random.default_rng(0).integers(9, small_tokenizer.vocab_size, found.order.shape).astype(np.int32)
    )
    graph = GraphTokenizer(small_tokenizer)
    expected = graph.decode(gap_parsing.fill_in(found, tf.constant(tokens[:, None]))).numpy()
    for row, text in enumerate(expected):
        ids = gaps.fill_in(found, row, tokens[row])
        assert small_tokenizer.decode(ids) == text.decode()

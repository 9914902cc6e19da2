"""Scores as people read them."""

import numpy as np

from run_scripts.score import describe
from xlnet_tf.generation.results import TextScore


def test_describes_a_text_in_the_order_of_prediction():
    score = TextScore(["▁a", "▁b"], np.float32([-1.5, -0.5]), np.array([1, 0]))
    assert describe("a b", score).splitlines() == [
        "  a b",
        "    -2.00 nats, 2 pieces, perplexity 2.7",
        "      1. piece 2       -0.50  ▁b",
        "      2. piece 1       -1.50  ▁a",
    ]
    assert describe("", TextScore([], np.float32([]), np.array([], int))) == "  \n    0.00 nats, 0 pieces"

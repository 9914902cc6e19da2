"""Scores as people read them."""

import numpy as np

from run_scripts.common.sharded import models
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


def test_all_workers_load_the_version_that_is_the_newest_at_the_start(tmp_path):
    scoring = models.Scoring(path=str(tmp_path))
    assert scoring.of_version() == scoring  # weights have no versions
    for number in (1, 2):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "openvino_model.xml").touch()
        assert scoring.of_version().path == str(tmp_path / f"{number}")
    assert scoring.of_version().of_version() == scoring.of_version()

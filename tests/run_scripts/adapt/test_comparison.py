"""What is said of scores before and after an adaptation."""

import math

from run_scripts.adapt.comparison import AFTER, BEFORE, Comparison
from run_scripts.common import pictures


def compared(before, after):
    seeds = list(range(len(before)))
    return Comparison("rmse", "dev", 9, 9, seeds, {BEFORE: before, AFTER: after}, {BEFORE: [], AFTER: []})


def test_a_run_that_diverged_is_worse_than_a_score_below_zero():
    found = compared([-1.5, -1.4, -1.6], [math.nan, -1.7, -1.8])
    assert found.spread(AFTER) == (-1.8, -math.inf, -1.7) and found.wins == 0
    assert found.verdict == (
        "Adapted weights are worse by 0.3000 in the median of rmse, and better with 0 of 3 seeds; "
        "every run is worse."
    )


def test_diverged_medians_have_no_difference():
    found = compared([math.nan, math.nan, 0.5], [0.7, 0.4, 0.6])
    assert "better in the median of rmse, and better with 3 of 3 seeds; the runs overlap" in found.verdict
    found = compared([math.nan], [math.nan])
    assert found.verdict == "The medians of rmse are equal: most runs diverged."


def test_pictures_show_percent_only_of_shares(tmp_path):
    for name, scores, shown, unit in (
        ("shares", [0.5, 0.25, math.nan], "25.0 %", True),
        ("errors", [-1.5, -1.25, math.nan], "-1.500", False),
        ("none", [math.nan], "no score", True),
    ):
        pictures.draw_scores({"a": scores}, "metric", tmp_path / name)
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert f">{shown}</text>" in drawn and ("on test texts (%)" in drawn) == unit

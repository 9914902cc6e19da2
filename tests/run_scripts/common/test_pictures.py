"""Pictures for pages of results."""

import math

from run_scripts.common import pictures


def test_pictures_show_percent_only_of_shares(tmp_path):
    for name, scores, shown, unit in (
        ("shares", [0.5, 0.25, math.nan], "25.0 %", True),
        ("errors", [-1.5, -1.25, math.nan], "-1.500", False),
        ("none", [math.nan], "no score", True),
    ):
        pictures.draw_scores({"a": scores}, "metric", tmp_path / name)
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert f">{shown}</text>" in drawn and ("on test texts (%)" in drawn) == unit

"""Pages of results."""

import math

from run_scripts.common import pages, pictures


def test_columns_of_figures_are_aligned_with_their_heads():
    found = pages.table(("text", "<unk>", "change", "mixed"), [("domain", "0.22%", "+0.179", "1")] * 2 + [
        ("general", "1,200 (3.1%)", "-0.444", "new")])  # fmt: skip
    assert '<th scope="col" class="number">&lt;unk&gt;</th>' in found
    assert '<td class="number">+0.179</td>' in found and '<td class="number">1,200 (3.1%)</td>' in found
    assert "<td>domain</td>" in found and "<td>1</td>" in found and '<th scope="col">mixed</th>' in found
    assert '<th scope="col">text</th>' in pages.table(["text"], [])


def test_pictures_show_percent_only_of_shares(tmp_path):
    for name, scores, shown, unit in (
        ("shares", [0.5, 0.25, math.nan], "25.0 %", True),
        ("errors", [-1.5, -1.25, math.nan], "-1.500", False),
        ("none", [math.nan], "no score", True),
    ):
        pictures.draw_scores({"a": scores}, "metric", tmp_path / name)
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert f">{shown}</text>" in drawn and ("on test texts (%)" in drawn) == unit

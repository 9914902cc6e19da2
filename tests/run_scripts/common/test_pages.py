"""Pages of results."""

from run_scripts.common import pages


def test_columns_of_figures_are_aligned_with_their_heads():
    found = pages.table(("text", "<unk>", "change", "mixed"), [("domain", "0.22%", "+0.179", "1")] * 2 + [
        ("general", "1,200 (3.1%)", "-0.444", "new")])  # fmt: skip
    assert '<th scope="col" class="number">&lt;unk&gt;</th>' in found
    assert '<td class="number">+0.179</td>' in found and '<td class="number">1,200 (3.1%)</td>' in found
    assert "<td>domain</td>" in found and "<td>1</td>" in found and '<th scope="col">mixed</th>' in found
    assert '<th scope="col">text</th>' in pages.table(["text"], [])

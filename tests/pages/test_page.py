"""Pages of results: every text is shown as it is."""

from xlnet_tf.pages import page

HOSTILE = "<script>alert('x')</script> & \"quoted\" $title </pre>"


def test_columns_of_figures_are_aligned_with_their_heads():
    found = page.table(("text", "<unk>", "change", "mixed"), [("domain", "0.22%", "+0.179", "1")] * 2 + [
        ("general", "1,200 (3.1%)", "-0.444", "new")])  # fmt: skip
    assert '<th scope="col" class="number">&lt;unk&gt;</th>' in found
    assert '<td class="number">+0.179</td>' in found and '<td class="number">1,200 (3.1%)</td>' in found
    assert "<td>domain</td>" in found and "<td>1</td>" in found and '<th scope="col">mixed</th>' in found
    assert '<th scope="col">text</th>' in page.table(["text"], [])


def test_texts_never_become_markup(tmp_path):
    parts = [
        page.section(HOSTILE, HOSTILE),
        page.paragraph(HOSTILE),
        page.commands([HOSTILE]),
        page.folded(HOSTILE, page.table([HOSTILE], [[HOSTILE]])),
    ]
    page.write(tmp_path / "page.html", HOSTILE, parts)
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text and text.count("&lt;script&gt;") == 9
    assert text.count("$title") == 9  # a text is no part of the template
    assert "http" not in text  # nothing is loaded from elsewhere

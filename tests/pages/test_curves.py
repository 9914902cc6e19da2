"""Curves as SVG: what they show, and that it is what they were given."""

import math
import re

import numpy as np
import pytest

from xlnet_tf.pages import page
from xlnet_tf.pages.curves import MOST, Curve, Line, chart, shown


def places(figure: str, kind: str) -> np.ndarray:
    """Returns the points of a figure's line or dots, in its coordinates: [points, 2]."""
    pattern = r'points="([^"]+)"' if kind == "line" else r'class="dots[^"]*" d="([^"]+)"'
    return np.array(
        [[*map(float, pair)] for pair in re.findall(r"([\d.]+),([\d.]+)", re.search(pattern, figure)[1])]
    )


def test_points_lie_where_their_values_are():
    steps, values = np.array([0, 10, 40, 100]), np.array([8.0, 4.0, 2.0, 1.0])
    figure = chart("Loss", [Curve("train", [*zip(steps, values)]), Curve("dev", [(100, 8.0)], dotted=True)])
    x, y = places(figure, "line").T
    np.testing.assert_allclose((x - x[0]) / (x[-1] - x[0]), steps / 100, atol=1e-3)
    np.testing.assert_allclose((y - y[0]) / (y[-1] - y[0]), (8 - values) / 7, atol=1e-3)
    assert y[0] < y[-1]  # up is more
    np.testing.assert_allclose(places(figure, "dots"), [[x[-1], y[0]]], atol=0.1)
    assert x.min() > 0 and x.max() < 400 and y.min() > 0 and y.max() < 230
    told = re.search('aria-label="([^"]+)"', figure)[1]
    assert told == (
        "Loss: train from 8 at step 0 to 1 at step 100, lowest 1, highest 8; "
        "dev from 8 at step 100 to 8 at step 100, lowest 8, highest 8"
    )


def test_axes_have_round_numbers():
    figure = chart("Loss", [Curve("train", [(0, 1.13), (12_345, 4.97)])])
    found = re.findall(r"<text[^>]*>([^<]+)</text>", figure)
    assert found == ["2", "3", "4", "0", "5,000", "10k"]


@pytest.mark.parametrize("value", [0.0, 3.0, -2.5, 1e-5, 1e12])
def test_any_values_have_a_chart(value):
    for points in ([(5, value)], [(0, value), (0, value)], [(0, value), (9, value), (10, math.nan)]):
        figure = chart("x", [Curve("a", points)])
        assert "nan" not in figure and "inf" not in figure
    assert chart("x", [Curve("a", []), Curve("b", [(1, math.nan)])]) == ""


@pytest.mark.parametrize("count", [1, MOST, 2 * MOST - 1, 2 * MOST, 7 * MOST + 3, 50_000])
def test_a_line_keeps_few_points_and_its_mean(count):
    line, values = Line(), np.random.default_rng(0).normal(size=count)
    for step, value in enumerate(values):
        line.add(step, value)
        if step % 1000 == 0:
            line.add(step, math.inf)  # of a step that diverged
    assert 0 < len(line.points) < 2 * MOST
    together = 1 << max(0, math.ceil(math.log2((count + 1) / (2 * MOST))))
    kept = count // together * together
    found = np.array(line.points)
    np.testing.assert_allclose(found[:, 1].mean(), values[:kept].mean(), atol=1e-9)
    assert (np.diff(found[:, 0]) > 0).all() and count - 1 - found[-1, 0] < 2 * together


def test_numbers_are_short():
    values = [0.00002, 0.0512, 7, 123.4, 9_999, 12_000, 123_456, 1_234_567, 98_765_432, 2e10]
    assert " ".join(map(shown, values)) == "2e-5 0.0512 7 123 9,999 12k 123k 1.23M 98.8M 20G"


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
        chart(HOSTILE, [Curve(HOSTILE, [(1, 1.0), (2, 2.0)])]),
    ]
    page.write(tmp_path / "page.html", HOSTILE, parts)
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert text.count("$title") == text.count("&lt;script&gt;") > 9  # a text is no part of the template
    assert "http" not in text  # nothing is loaded from elsewhere

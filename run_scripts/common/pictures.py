"""Pictures for pages: scores, and shared styles; as PNG for people and as SVG for the page."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from xlnet_tf import figures
from xlnet_tf.pages.page import INK

COLORS = ("#d95f0e", "#3182bd", "#8c8c8c", "#8c8c8c")  # visible on white and on black


def draw_scores(scores: Mapping[str, Sequence[float]], metric: str, path: pathlib.Path) -> None:
    """Draws a bar for the median of each way of learning, and a point for each seed.

    Scores are name -> metric with each seed, in percent if all are from 0 to 1; NaN is none. The suffix of
    `path` becomes .png and .svg.
    """
    known = [value for values in scores.values() for value in values if np.isfinite(value)]
    in_percent = all(0 <= value <= 1 for value in known)
    scale, unit = (100, " %") if in_percent else (1, "")
    with axes_of(path, 0.6 * len(scores) + 1) as axes:
        for row, (values, color) in enumerate(zip(scores.values(), COLORS)):
            median = scale * float(np.median(np.nan_to_num(values, nan=-np.inf)))
            axes.plot(scale * np.array(values), [row] * len(values), "o", color=INK, ms=3.5, zorder=3)
            text = "no score"
            if np.isfinite(median):
                axes.barh(row, median, color=color, height=0.6)
                text = f"{median:.1f}{unit}" if in_percent else f"{median:.3f}"
            axes.text(1.01, row, text, va="center", color=INK, transform=axes.get_yaxis_transform())
        axes.set_yticks(range(len(scores)), list(scores))
        axes.set(xlabel=f"{metric} on test texts" + f" ({unit.strip()})" * bool(unit))
        if in_percent:
            axes.set(xlim=(0, 100))
        axes.invert_yaxis()


@contextlib.contextmanager
def axes_of(path: pathlib.Path, height: float) -> Iterator:
    """Yields the axes of a new figure, which is saved as .png on white and as .svg without a background."""
    import matplotlib

    ink = dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    )
    with matplotlib.rc_context({**ink, "svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 12}):
        figure = figures.new(7, height)
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        yield axes
        figures.save(figure, path.with_suffix(".png"), dpi=120)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        figures.save(figure, path.with_suffix(".svg"), dpi=120)

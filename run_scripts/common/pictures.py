"""Pictures for pages: scores, and what all of them share; as PNG for people and as SVG for the page."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from xlnet_tf import files

INK = "#010203"  # stands for the colour of text, which pages.py puts in place
COLORS = ("#d95f0e", "#3182bd", "#8c8c8c", "#8c8c8c")  # visible on white and on black


def draw_scores(
    scores: Mapping[str, Sequence[float]], metric: str, path: pathlib.Path, split: str = "test"
) -> None:
    """Draws a bar for the median of each way of learning, and a point for each seed.

    Args:
        scores: name -> metric with each seed, 0 to 1.
        metric: its name.
        path: of the pictures, whose suffix becomes .png and .svg.
        split: of the texts.
    """
    with axes_of(path, 0.6 * len(scores) + 1) as axes:
        for row, (values, color) in enumerate(zip(scores.values(), COLORS)):
            median = 100 * float(np.median(values))
            axes.barh(row, median, color=color, height=0.6)
            axes.plot(100 * np.array(values), [row] * len(values), "o", color=INK, ms=3.5)
            axes.text(101, row, f"{median:.1f} %", va="center", color=INK)
        axes.set_yticks(range(len(scores)), list(scores))
        axes.set(xlim=(0, 100), xlabel=f"{metric} on {split} texts (%)")
        axes.invert_yaxis()


@contextlib.contextmanager
def axes_of(path: pathlib.Path, height: float) -> Iterator:
    """Gives the axes of a new figure, which is saved as .png on white and as .svg without a background."""
    import matplotlib
    from matplotlib.figure import Figure

    ink = dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    )
    with matplotlib.rc_context({**ink, "svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 12}):
        figure = Figure(figsize=(7, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        yield axes
        files.save_figure(figure, path.with_suffix(".png"), dpi=120)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        files.save_figure(figure, path.with_suffix(".svg"), dpi=120)

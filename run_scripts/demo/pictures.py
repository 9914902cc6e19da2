"""The demos' pictures: loss curves and accuracies, as PNG for people and as SVG for the page."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from xlnet_tf import files

INK = "#010203"  # stands for the colour of text, which page.py puts in place
COLORS = ("#d95f0e", "#3182bd", "#8c8c8c", "#8c8c8c")  # visible on white and on black


def draw_losses(history: Sequence[dict], entropy: float, path: pathlib.Path) -> None:
    """Draws the loss curves and the line to beat.

    Args:
        history: lines of a pretraining run's history.
        entropy: loss in nats of the best guess that ignores the context.
        path: of the pictures, whose suffix becomes .png and .svg.
    """
    train = [line for line in history if line["kind"] == "train"]
    dev = [line for line in history if line["kind"] == "dev"]
    with _axes(path, 4.2) as axes:
        steps, losses = ([line[name] for line in train] for name in ("step", "training_loss"))
        axes.plot(steps, losses, color=COLORS[2], alpha=0.6, lw=1, label="train")
        # Points alone: a line between two evaluations would be a guess.
        for name, label, marker, color in (
            ("loss_forward", "held out, read forward", "o", COLORS[0]),
            ("loss_backward", "held out, read backward", "x", COLORS[1]),
        ):
            steps, losses = ([line[key] for line in dev] for key in ("step", name))
            axes.plot(steps, losses, marker, color=color, ms=4, label=label)
        axes.axhline(entropy, color=INK, lw=1, ls=":", label=f"word frequencies alone: {entropy:.2f}")
        axes.set(xlabel="step", ylabel="loss (nats per target)")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)


def draw_scores(scores: Mapping[str, Sequence[float]], metric: str, path: pathlib.Path) -> None:
    """Draws a bar for the median of each way of learning, and a point for each seed.

    Args:
        scores: name -> metric with each seed, 0 to 1.
        metric: its name.
        path: of the pictures, whose suffix becomes .png and .svg.
    """
    with _axes(path, 0.6 * len(scores) + 1) as axes:
        for row, (values, color) in enumerate(zip(scores.values(), COLORS)):
            median = 100 * float(np.median(values))
            axes.barh(row, median, color=color, height=0.6)
            axes.plot(100 * np.array(values), [row] * len(values), "o", color=INK, ms=3.5)
            axes.text(101, row, f"{median:.1f} %", va="center", color=INK)
        axes.set_yticks(range(len(scores)), list(scores))
        axes.set(xlim=(0, 100), xlabel=f"{metric} on test texts (%)")
        axes.invert_yaxis()


@contextlib.contextmanager
def _axes(path: pathlib.Path, height: float) -> Iterator:
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

"""The demos' picture of loss curves."""

import pathlib
from collections.abc import Sequence

from run_scripts.common.pictures import COLORS, INK, axes_of


def draw_losses(history: Sequence[dict], entropy: float, path: pathlib.Path) -> None:
    """Draws the loss curves and the line to beat.

    Args:
        history: lines of a pretraining run's history.
        entropy: loss in nats of the best guess that ignores the context.
        path: of the pictures, whose suffix becomes .png and .svg.
    """
    train = [line for line in history if line["kind"] == "train"]
    dev = [line for line in history if line["kind"] == "dev"]
    with axes_of(path, 4.2) as axes:
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

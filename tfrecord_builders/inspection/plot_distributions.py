"""Draws the distributions of a set's lengths, targets and spans as a picture."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from xlnet_tf import figures
from xlnet_tf.records.segments import NUM_SPECIAL

BLUE, ORANGE, DARK = "#9ecae1", "#e6550d", "#222222"
BINS = 32  # of the lengths of A and B


def draw(statistics: Mapping[str, Any], path: str) -> None:
    """Draws the distributions of a set into a file, from the result of `statistics.count`."""
    this = statistics["set"]
    figure = figures.new(13, 8.5)
    axes = figure.subplots(2, 2)
    _draw_documents(axes[0, 0], statistics)
    _draw_segments(axes[0, 1], statistics)
    _draw_density(axes[1, 0], statistics)
    _draw_spans(axes[1, 1], statistics)
    figure.suptitle(
        f"{this['records']:,} records of {this['seq_len']} tokens, {this['num_predict']} targets each "
        f"({this['objective']})",
        fontsize=14,
    )
    figures.save(figure, path, dpi=110)


def _draw_documents(axis, statistics):
    seq_len, lengths = statistics["set"]["seq_len"], statistics["text"].get("document_lengths", {})
    exponents = [int(np.log2(int(length))) for length in lengths]
    axis.bar(np.array(exponents) + 0.5, lengths.values(), width=0.94, color=BLUE)
    axis.axvline(np.log2(seq_len), color=ORANGE)
    axis.annotate(
        f"a segment: {seq_len}",
        (np.log2(seq_len), 1),
        xycoords=("data", "axes fraction"),
        xytext=(5, -14),
        textcoords="offset points",
        color=ORANGE,
    )
    ticks = range(min(exponents, default=0), max(exponents, default=0) + 2)
    axis.set_xticks(ticks, [f"{2**tick:,}" for tick in ticks], rotation=45)
    axis.set_title("Documents")
    axis.set_xlabel("tokens")
    axis.set_ylabel("documents")


def _draw_segments(axis, statistics):
    room = statistics["set"]["seq_len"] - statistics["set"]["reuse_len"] - NUM_SPECIAL
    step = max(1, room // BINS)
    edges = np.arange(0, room + step, step)  # the last one is at least the longest length
    for name, color, label in (("a_lengths", BLUE, "A"), ("b_lengths", ORANGE, "B")):
        lengths = [int(length) for length in statistics[name]]
        heights, _ = np.histogram(lengths, edges, weights=list(statistics[name].values()))
        axis.stairs(heights, edges, color=color, label=label, fill=label == "A", linewidth=1.5)
    axis.set_ylim(0, 1.2 * axis.dataLim.ymax)
    axis.set_title("A and B, which follow the reused part")
    axis.set_xlabel("tokens")
    axis.set_ylabel("records")
    axis.legend(frameon=False, ncols=2, loc="upper right")


def _draw_density(axis, statistics):
    this, density = statistics["set"], np.array(statistics["target_density"])
    mean = this["num_predict"] / this["seq_len"]
    axis.stairs(density, np.arange(len(density) + 1) - 0.5, color=BLUE, fill=True)
    axis.axhline(
        mean, color=DARK, linewidth=0.8, linestyle="--", label=f"all targets / all tokens: {mean:.3f}"
    )
    axis.axvline(this["reuse_len"] - 0.5, color=ORANGE, label="end of the reused part")
    axis.set_ylim(0, max(1.35 * mean, 1.05 * float(density.max(initial=0))))
    axis.set_title("Targets by position")
    axis.set_xlabel("position in the segment (SEP and CLS are never targets)")
    axis.set_ylabel("share of records with a target there")
    axis.legend(frameon=False, loc="lower left")


def _draw_spans(axis, statistics):
    this, spans, expected = statistics["set"], statistics["spans"], statistics["expected_spans"]
    total = max(sum(spans.values()), 1)
    most = max([int(n) for n in expected] or [8]) + 3
    shown = {n: spans.get(str(n), 0) / total for n in range(1, most + 1)}
    rest = sum(count for n, count in spans.items() if int(n) > most) / total
    axis.bar(shown.keys(), shown.values(), width=0.7, color=BLUE, label="found")
    if expected:
        axis.plot(
            [int(n) for n in expected],
            expected.values(),
            "o--",
            color=ORANGE,
            label="to be drawn: P(n) ~ 1/n",
        )
    unit = "words" if this["span_mode"] == "words" else "tokens"
    axis.set_title("Spans of targets" + (f" ({rest:.1%} are longer)" if rest else ""))
    axis.set_xticks(list(shown))
    axis.set_xlabel(unit)
    axis.set_ylabel("share of the spans")
    axis.legend(frameon=False)

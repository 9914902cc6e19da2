"""Draws the permutation mask of a record as a picture."""

from collections.abc import Sequence

import numpy as np
from absl import logging

from tfrecord_builders.inspection.show import Record, load_record, visible_piece
from xlnet_tf import figures
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.text.tokenizer import XLNetTokenizer

MOST_LABELLED = 64  # tokens whose pieces still fit along the sides of a picture
LEGEND = {  # what a cell says -> its colour
    "not visible": "#f4f4f4",
    "visible: context": "#9ecae1",
    "visible: target that was predicted before": "#e6550d",
    "visible: SEP or CLS": "#31a354",
    "visible: the position itself": "#222222",
}
_TARGET = 2  # in the legend


def draw(manifest: Manifest, number: int, path: str, first: int = 0, count: int | None = None) -> None:
    """Draws the permutation mask of a record for both streams.

    Up to MOST_LABELLED positions are labelled with their pieces; targets also with their number in the order
    of prediction. A piece that no installed font can show is labelled with its id.
    """
    import matplotlib
    from matplotlib.patches import Patch

    _, _, record = load_record(manifest, number)
    last = manifest.seq_len if count is None else min(manifest.seq_len, first + count)
    if not 0 <= first < last:
        raise UserError(
            f"window of {'all' if count is None else count} positions from {first}, expected some of 0 to "
            f"{manifest.seq_len - 1}: see --first and --count"
        )
    window = range(first, last)
    families, labels = _labels(manifest, record, window)
    size = max(6.5, 0.19 * len(window)) if labels else 8.5
    with matplotlib.rc_context({"font.family": families}):
        figure = figures.new(2 * size + 1, size + 1.9)
        figure.get_layout_engine().set(h_pad=0.12)  # inches, between titles, labels and legend
        content, query = figure.subplots(1, 2)
        content.set_title("content stream:\nevery position sees its own token, too", fontsize=13)
        _draw_stream(content, manifest, record, window, labels, is_query=False)
        query.set_title(
            "query stream, of targets only (others are pale):\nwithout their own token", fontsize=13
        )
        _draw_stream(query, manifest, record, window, labels, is_query=True)
        direction = "forward" if record.columns["direction"] == 1 else "backward"
        figure.suptitle(
            f"Permutation mask of record {number} ({manifest.objective}, read {direction}, "
            f"{len(record.targets)} targets). "
            + (
                "(1), (2), ... is the order in which the targets are predicted"
                if labels
                else f"For pieces and the order of targets, draw up to {MOST_LABELLED} positions (--count)"
            ),
            fontsize=14,
        )
        handles = [Patch(facecolor=c, edgecolor="#999999", label=name) for name, c in LEGEND.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=11)
        figures.save(figure, path, dpi=110)


def _draw_stream(
    axis, manifest: Manifest, record: Record, window: range, labels: Sequence[str], is_query: bool
) -> None:
    """Draws which positions a window's positions see in a stream, with the borders of the record's parts."""
    from matplotlib.colors import to_rgb

    first, last = window.start, window.stop
    colors = np.array([to_rgb(color) for color in LEGEND.values()])
    kind = np.where(record.special, 3, np.where(record.is_target, _TARGET, 1))  # [T], what a visible key is
    visible = record.query_visible if is_query else record.content_visible
    shades = colors[np.where(visible, np.where(np.eye(len(kind), dtype=bool), 4, kind[None, :]), 0)]
    if is_query:
        shades[~record.is_target] = 0.25 * shades[~record.is_target] + 0.75
    extent = (first - 0.5, last - 0.5, last - 0.5, first - 0.5)
    axis.imshow(shades[first:last, first:last], interpolation="nearest", extent=extent)
    axis.set_xlabel("key: the position that is seen")
    axis.set_ylabel("query: the position that sees it")
    parts = {
        name: (max(part.start, first), min(part.stop, last))
        for name, part in record.parts(manifest.reuse_len).items()
        if part.start < last and part.stop > first
    }
    middles = [(start + stop - 1) / 2 for start, stop in parts.values()]
    axis.secondary_xaxis("top").set_xticks(middles, list(parts), color="#444444")
    for start, _ in list(parts.values())[1:]:
        axis.axhline(start - 0.5, color="black", linewidth=0.8)
        axis.axvline(start - 0.5, color="black", linewidth=0.8)
    if labels:
        axis.set_xticks(window, labels, rotation=90, fontsize=8)
        axis.set_yticks(window, labels, fontsize=8)
        for side in (axis.get_xticklabels(), axis.get_yticklabels()):
            for position, tick in zip(window, side, strict=True):
                if record.is_target[position]:
                    tick.set(color=colors[_TARGET], fontweight="bold")


def _labels(manifest: Manifest, record: Record, window: range) -> tuple[list[str], list[str]]:
    """Returns (font families, labels of a window's positions, none if they are many)."""
    if len(window) > MOST_LABELLED:
        return figures.fonts_for("")[0], []
    tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
    pieces = {position: visible_piece(tokenizer.id_to_piece(record.ids[position])) for position in window}
    families, missing = figures.fonts_for("".join(pieces.values()))
    if missing:
        logging.warning(
            "no installed font has %s: the picture shows the ids of pieces with them. %s",
            " ".join(sorted(missing)[:10]),
            figures.INSTALL_FONT,
        )
    labels = {
        position: f"id {record.ids[position]}" if missing & set(piece) else piece
        for position, piece in pieces.items()
    }
    for turn, step in enumerate(record.steps(), 1):
        for position in step:
            if position in labels:
                labels[position] += f" ({turn})"
    return families, list(labels.values())

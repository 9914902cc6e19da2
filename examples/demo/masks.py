"""The permutation mask of a record as drawings in a page, readable on a telephone and in the dark."""

import html
from collections.abc import Sequence

import numpy as np

from tfrecord_builders.inspection.show import Record, load_record, visible_piece
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.text.tokenizer import XLNetTokenizer

CELL, MARGIN = 12, 84  # pixels of a square and of the pieces' names, on a page 360 pixels wide
_LONGEST = 11  # letters of a piece
KINDS = {  # what a visible square stands for -> its colour, on white and on black
    "context": "#3182bd",
    "a target that was predicted before": "#e6550d",
    "SEP or CLS": "#31a354",
    "the position itself": "currentColor",
}
_CONTEXT, _TARGET, _SPECIAL, _SELF = KINDS.values()


def draw(manifest: Manifest, number: int, count: int) -> str:
    """Returns the first positions of a record in both streams, with a legend, as a part of a page."""
    _, _, record = load_record(manifest, number)
    tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
    turns = {position: turn for turn, step in enumerate(record.steps(), 1) for position in step}
    names = []
    for position in range(count):
        piece = visible_piece(tokenizer.id_to_piece(record.ids[position]))
        piece = (piece.strip("▁") or piece)[:_LONGEST]
        names.append(f"{piece} ({turns[position]})" if position in turns else piece)
    drawings = "\n".join(
        f"<div>{stream(title, colors_of(record, query, count), names)}</div>"
        for title, query in (("Content stream", False), ("Query stream: targets only", True))
    )
    legend = "".join(
        f'<li><span style="color:{color}" aria-hidden="true">■</span> {html.escape(name)}</li>'
        for name, color in KINDS.items()
    )
    return f'<figure>\n<div class="pair">{drawings}</div>\n<ul class="legend">{legend}</ul></figure>'


def colors_of(record: Record, query: bool, count: int) -> list[list[str]]:
    """Returns the colour of each square, by rows, the positions that see; "" is what is hidden."""
    kinds = np.where(record.special, _SPECIAL, np.where(record.is_target, _TARGET, _CONTEXT))
    visible = record.query_visible & record.is_target[:, None] if query else record.content_visible
    shown = np.where(np.eye(len(kinds), dtype=bool), _SELF, kinds[None, :])
    return np.where(visible, shown, "")[:count, :count].tolist()


def stream(title: str, colors: Sequence[Sequence[str]], names: Sequence[str]) -> str:
    """Returns a drawing of squares, with the positions' names on both sides."""
    size = MARGIN + CELL * len(names)
    parts = [
        f'<rect x="{MARGIN}" y="{MARGIN}" width="100%" height="100%" fill="currentColor" opacity=".08"/>'
    ]
    for row, name in enumerate(names):
        middle, label = MARGIN + CELL * row + CELL * 0.75, html.escape(name)
        parts += [
            f'<text x="{MARGIN - 3}" y="{middle}" text-anchor="end">{label}</text>',
            f'<text transform="translate({middle},{MARGIN - 3}) rotate(-90)">{label}</text>',
            *(
                f'<rect x="{MARGIN + CELL * column}" y="{MARGIN + CELL * row}" width="{CELL - 1}" '
                f'height="{CELL - 1}" fill="{color}"/>'
                for column, color in enumerate(colors[row])
                if color
            ),
        ]
    return (
        f'<svg role="img" aria-label="{html.escape(title)}: which positions each position sees" '
        f'viewBox="0 0 {size} {size}" font-size="9.5" fill="currentColor">{"".join(parts)}</svg>'
        f"<figcaption>{html.escape(title)}</figcaption>"
    )

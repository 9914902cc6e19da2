"""Metrics as a table for people."""

import math
from collections.abc import Callable, Mapping, Sequence

_WIDTH = 80  # characters of a terminal


def metric_table(
    rows: Mapping[str, Mapping[str, float | str]], title: str = "", notes: Mapping[str, str] = {}
) -> str:
    """Returns a table that fits into 80 columns; metrics that do not fit continue in further blocks of lines.

    Missing cells are nan. `title` heads the column of row names; `notes` are appended to rows, by name.
    """
    names = _column([title, *rows], str.ljust)
    metrics = dict.fromkeys(metric for values in rows.values() for metric in values)
    columns = []
    for metric in metrics:
        cells = [values.get(metric, math.nan) for values in rows.values()]
        shown = [f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells]
        columns.append(_column([metric, *shown], str.rjust))
    room = _WIDTH - max((len(note) + 2 for note in notes.values()), default=0)
    blocks = [[names]]
    for column in columns:
        used = sum(len(each[0]) + 2 for each in blocks[-1])
        if len(blocks[-1]) > 1 and used + len(column[0]) > room:
            blocks.append([names])
        blocks[-1].append(column)
    lines = [["  ".join(cells) for cells in zip(*block)] for block in blocks]
    ends = ["", *(notes.get(name, "") for name in rows)]
    lines[0] = [f"{line}  {end}".rstrip() for line, end in zip(lines[0], ends)]
    return "\n\n".join("\n".join(block) for block in lines)


def _column(cells: Sequence[str], justify: Callable[[str, int], str]) -> list[str]:
    width = max(map(len, cells))
    return [justify(cell, width) for cell in cells]

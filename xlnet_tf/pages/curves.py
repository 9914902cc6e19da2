"""Curves over the steps of a training, drawn as SVG: without a library, and in the colours of the page."""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 400, 230, 52, 8, 10, 24
_TICKS = 4  # about as many on an axis
_UNITS = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))  # from which value on, size, sign
MOST = 400  # points of a line, more than a page has room for


class Curve(NamedTuple):
    """The values of a curve."""

    name: str
    points: Sequence[tuple[float, float]]  # (step, value) by rising step
    dotted: bool = False  # whether each value is a point, since a line between two would be a guess


class Line:
    """Collects the points of a line, means of as many neighbours as keep them few; leaves out NaN."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._waiting: list[tuple[float, float]] = []
        self._together = 1

    def add(self, step: float, value: float) -> None:
        if not math.isfinite(value):
            return
        self._waiting.append((step, value))
        if len(self._waiting) == self._together:
            self.points.append(_mean(self._waiting))
            self._waiting = []
        if len(self.points) == 2 * MOST:
            self.points = [_mean(self.points[index : index + 2]) for index in range(0, 2 * MOST, 2)]
            self._together *= 2


def _mean(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    steps, values = zip(*points)
    return sum(steps) / len(steps), sum(values) / len(values)


def shown(value: float) -> str:
    """Returns a number of an axis or a label, in a few characters."""
    for least, size, unit in _UNITS:
        if abs(value) >= least:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}".replace("e-0", "e-") if abs(value) < 1000 else f"{value:,.0f}"


def chart(title: str, curves: Sequence[Curve]) -> str:
    """Returns a figure with a title, a legend and curves of one unit; "" without points."""
    # Each keeps its colour, although others have no points.
    finite = [[point for point in curve.points if math.isfinite(point[1])] for curve in curves]
    drawn = [
        (n, curve._replace(points=points)) for n, (curve, points) in enumerate(zip(curves, finite)) if points
    ]
    if not drawn:
        return ""
    curves = [curve for _, curve in drawn]
    every = [point for curve in curves for point in curve.points]
    steps, values = (_Axis.of([point[index] for point in every]) for index in (0, 1))

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * steps.share(step)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * values.share(value)

    parts = []
    for tick in values.ticks():
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{shown(tick)}</text>')
    for tick in steps.ticks():
        anchor = "end" if x(tick) > _WIDTH - 30 else "middle"
        parts.append(f'<text x="{x(tick):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{shown(tick)}</text>')
    for number, curve in drawn:
        places = [f"{x(step):.1f},{y(value):.1f}" for step, value in curve.points]
        if not curve.dotted and len(places) > 1:
            parts.append(f'<polyline class="curve{number}" points="{" ".join(places)}"/>')
        else:
            dots = "".join(f"M{place}h0" for place in places)
            parts.append(f'<path class="dots curve{number}" d="{dots}"/>')
    keys = "".join(
        f' <span class="key"><i class="curve{number}"></i>{html.escape(curve.name)}</span>'
        for number, curve in drawn
    )
    label = html.escape(_spoken(title, curves))
    return (
        f"<figure>\n<figcaption><b>{html.escape(title)}</b>{keys}</figcaption>\n"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg></figure>"
    )


class _Axis(NamedTuple):
    """The range of an axis."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "_Axis":
        low, high = min(values), max(values)
        return cls(low, high) if high > low else cls(low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2)

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Returns round numbers in the range, at 1, 2 or 5 times a power of ten."""
        width = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(width))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= width)
        return [
            step * number for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]


def _spoken(title: str, curves: Sequence[Curve]) -> str:
    """Returns what curves show, in words."""
    described = [
        f"{curve.name} from {shown(curve.points[0][1])} at step {curve.points[0][0]:,.0f} to "
        f"{shown(curve.points[-1][1])} at step {curve.points[-1][0]:,.0f}, "
        f"lowest {shown(min(value for _, value in curve.points))}, "
        f"highest {shown(max(value for _, value in curve.points))}"
        for curve in curves
    ]
    return f"{title}: {'; '.join(described)}"

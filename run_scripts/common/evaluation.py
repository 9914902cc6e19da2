"""Reports of an evaluation besides its metrics: confidence intervals, and the quality of probabilities."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from etils import epath

from xlnet_tf import figures, files
from xlnet_tf.tasks.classification.metrics import LOWER_IS_BETTER
from xlnet_tf.tasks.metrics import calibration, resampling
from xlnet_tf.tasks.metrics.calibration import Bin, Point
from xlnet_tf.tasks.metrics.resampling import Difference, Interval

REPORT_FILE = "evaluation.json"
PICTURES = ("reliability.svg", "thresholds.svg")
_MOST_CURVES = 10  # of labels in one picture


class Report(NamedTuple):
    """Statistics of one checkpoint's predictions; empty where not asked for or without probabilities.

    Scores, precision and recall are by label's or metric's name; differences are to another run's metrics.
    """

    intervals: Mapping[str, Interval]
    differences: Mapping[str, Difference]
    calibration: Mapping[str, float]
    bins: list[Bin]
    curves: Mapping[str, list[Point]]


def report(task, examples, predictions, against=None, samples: int = resampling.SAMPLES) -> Report:
    """Examines a Predictor's predictions for a set with answers; without samples there are no intervals.

    `against` is the task of another run and its predictions for the same set.
    """
    units, score = task.units(examples, predictions), _scorer(task)
    intervals = resampling.intervals(score, units, samples) if samples else {}
    differences: Mapping[str, Difference] = {}
    if against and samples:
        other_task, others = against
        differences = _differences(task, units, other_task, other_task.units(examples, others), samples)
    probabilities = task.probabilities(examples, predictions)
    if probabilities is None:
        return Report(intervals, differences, {}, [], {})
    return Report(
        intervals,
        differences,
        calibration.calibration_scores(probabilities),
        calibration.reliability(probabilities),
        {
            label: calibration.threshold_curve(values, targets)
            for label, values, targets in zip(
                probabilities.labels, probabilities.values.T, probabilities.targets.T, strict=True
            )
        },
    )


def _scorer(task) -> resampling.Scorer:
    """Returns the function from units to a task's metrics without counts, such as that of queries."""
    return lambda units: {
        name: value for name, value in task.score_units(units).items() if not isinstance(value, int)
    }


def _differences(
    task, units: resampling.Units, other_task, others: resampling.Units, samples: int
) -> dict[str, Difference]:
    """Compares two runs, each by its own thresholds, by the metrics that both have and the units decide."""
    score, names = _scorer(task), [name for name in units if name in others]
    first, second = ({name: each[name] for name in names} for each in (units, others))
    before, now = (score(units), _scorer(other_task)(others)), (score(first), score(second))
    kept = [
        name for name in now[0] if all(own.get(name) == shared.get(name) for own, shared in zip(before, now))
    ]

    def score_kept(units) -> dict[str, float]:
        values = score(units)
        return {name: values[name] for name in kept if name in values}

    return resampling.differences(score_kept, first, second, samples)


def table(found: Report, metrics: Mapping[str, float], against: str = "") -> str:
    """Returns a report for people, given the checkpoint's metrics and the name of the other run."""
    sections = []
    if found.intervals:
        width = max(map(len, found.intervals))
        lines = [f"{'':<{width}}  {'value':>9}  95 % interval"]
        lines += [
            f"{name:<{width}}  {metrics[name]:9.4f}  {low:.4f} to {high:.4f}"
            for name, (low, high) in found.intervals.items()
            if not math.isnan(low)
        ]
        sections.append("\n".join(lines))
    if found.differences:
        width = max(map(len, found.differences))
        lines = [f"difference to {against}", f"{'':<{width}}  {'value':>9}  95 % interval          p"]
        lines += [
            f"{name:<{width}}  {value:+9.4f}  {low:+.4f} to {high:+.4f}  {p:.4f}"
            + ("  (lower is better)" if name in LOWER_IS_BETTER else "")
            for name, (value, (low, high), p) in found.differences.items()
            if not math.isnan(value)
        ]
        sections.append("\n".join(lines))
    if found.calibration:
        sections.append("  ".join(f"{name} {value:.4f}" for name, value in found.calibration.items()))
    return "\n\n".join(sections)


def write(found: Report, folder: epath.Path) -> list[str]:
    """Writes evaluation.json and, where there are probabilities, pictures; returns the files' names."""
    content = {
        "intervals": {name: list(interval) for name, interval in found.intervals.items()},
        "differences": {name: each._asdict() for name, each in found.differences.items()},
        "calibration": dict(found.calibration),
        "reliability": [each._asdict() for each in found.bins],
        "thresholds": {label: [p._asdict() for p in points] for label, points in found.curves.items()},
    }
    files.write_json(folder / REPORT_FILE, content)
    if not found.bins:
        return [REPORT_FILE]
    _draw_reliability(found, folder / PICTURES[0])
    _draw_thresholds(found.curves, folder / PICTURES[1])
    return [REPORT_FILE, *PICTURES]


def _draw_reliability(found: Report, path: epath.Path):
    figure = figures.new(5, 5)
    axes = figure.subplots()
    confidence, frequency, counts = np.array(found.bins).T
    axes.plot([0, 1], [0, 1], "--", color="grey", label="perfect")
    axes.plot(confidence, frequency, color="tab:blue")
    axes.scatter(confidence, frequency, s=20 + 180 * counts / counts.max(), color="tab:blue", label="model")
    axes.set(
        title=f"Expected calibration error {found.calibration['ece']:.3f}",
        xlabel="confidence; larger points are of more predictions",
        ylabel="share that is right",
        xlim=(0, 1.02),
        ylim=(0, 1.02),
    )
    axes.legend(loc="upper left")
    figures.save(figure, path, dpi=100)


def _draw_thresholds(curves: Mapping[str, list[Point]], path: epath.Path):
    figure = figures.new(10, 4.5)
    shown = list(curves.items())[:_MOST_CURVES]
    for axes, name in zip(figure.subplots(1, 2, sharey=True), ("precision", "recall")):
        for label, points in shown:
            axes.plot([p.threshold for p in points], [getattr(p, name) for p in points], label=label)
        axes.set(title=name, xlabel="threshold on the label's probability", xlim=(0, 1), ylim=(0, 1.02))
    more = f" (the first {_MOST_CURVES} of {len(curves)})" if len(curves) > len(shown) else ""
    figure.legend(
        *axes.get_legend_handles_labels(), title=f"label{more}", fontsize="small", loc="outside right upper"
    )
    figures.save(figure, path, dpi=100)

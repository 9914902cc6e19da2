"""A page about a run, MODEL_DIR/report.html, which is written anew while it trains."""

import datetime
import time
from collections.abc import Mapping, Sequence
from typing import Any

from xlnet_tf.checkpoints.model_card import BEST
from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.pages import page
from xlnet_tf.pages.curves import Curve, Line, chart
from xlnet_tf.training.early_stopping import read_metrics
from xlnet_tf.training.task import Task

FILE = "report.html"
_SHARE = 0.01  # of the time, at most, for writing the page
_SHOWN = 12  # evaluations in the table


class RunReport:
    """Collects what a run reports, and writes its page; only the chief should have one that does `write`."""

    def __init__(self, task: Task, model_dir: str, train_steps: int, write: bool = True, clock: Any = time):
        self._task, self._model_dir, self._train_steps = task, model_dir, train_steps
        self._write, self._clock = write, clock
        self._lines = {name: Line() for name in ("training_loss", "learning_rate", "tokens_per_second")}
        self._lines[task.shown_metric] = Line()
        self._evaluations: list[Mapping[str, float]] = []
        self._step, self._due = 0, 0.0
        self._slow_parts: list[str] = []

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes a line of the run's history; see of_runs.read_history."""
        self._step = line["step"]
        if line["kind"] == "dev":
            self._evaluations.append({name: value for name, value in line.items() if name != "kind"})
            return
        for name, points in self._lines.items():
            if name in line:
                points.add(line["step"], line[name])

    def write_if_due(self, _: Any = None) -> None:
        """Writes the page unless that would take more than a hundredth of the time."""
        if self._write and self._clock.monotonic() >= self._due:
            self._write_page()

    def write(self, ended: str = "", evaluated: bool = True) -> None:
        """Writes the page, with why the run has `ended`; looks at the best weights again if `evaluated`."""
        if self._write:
            if evaluated:
                best = read_metrics(f"{self._model_dir}/{BEST}")
                self._slow_parts = [*self._weights(best), *self._task.report_parts(self._model_dir)]
            self._write_page(ended)

    def _write_page(self, ended: str = "") -> None:
        begun = self._clock.monotonic()
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        where = f"Step {self._step:,} of {self._train_steps:,}, {now}. "
        state = ended or "The page is written anew while the run trains: reload it."
        parts = [page.paragraph(where + state), *self._charts(), *self._table(), *self._slow_parts]
        page.write(f"{self._model_dir}/{FILE}", f"Run {self._model_dir.rpartition(chr(47))[2]}", parts)
        now_ends = self._clock.monotonic()
        self._due = now_ends + (now_ends - begun) / _SHARE

    def _charts(self) -> list[str]:
        def train(name: str) -> Curve:
            return Curve("train", self._lines[name].points)

        def dev(name: str) -> Curve:
            found = [(line["step"], line[name]) for line in self._evaluations if name in line]
            every = -(-len(found) // 200)
            return Curve("dev", found[::-1][:: every or 1][::-1], dotted=True)

        metric = self._task.shown_metric
        charts = (
            chart("Loss", [train("training_loss"), dev("loss")]),
            chart(metric, [train(metric), dev(metric)]),
            chart("Learning rate", [train("learning_rate")]),
            chart("Tokens per second", [train("tokens_per_second")]),
        )
        return ['<div class="charts">', *charts, "</div>"]

    def _table(self) -> list[str]:
        if not self._evaluations:
            return []
        names = [*dict.fromkeys(name for line in self._evaluations for name in line)]
        rows = [[_shown(line.get(name)) for name in names] for line in self._evaluations[-_SHOWN:]]
        return [page.folded(f"The last {len(rows)} evaluations on dev", page.table(names, rows))]

    def _weights(self, best: Mapping[str, Any]) -> Sequence[str]:
        """Returns which weights the run has kept."""
        if best:
            numbers = {name: value for name, value in best.items() if isinstance(value, (int, float))}
            text = f"{self._model_dir}/{BEST}, of step {best['step']:,}; the run's folder stands for them."
            rows = [(name, _shown(value)) for name, value in numbers.items() if name != "step"]
            return [page.section("Best weights", text), page.table(("On dev", "Value"), rows)]
        path = newest(self._model_dir)
        return [page.section("Newest checkpoint", path)] if path else []


def _shown(value: Any) -> str:
    return f"{value:,.4f}" if isinstance(value, float) else "" if value is None else f"{value:,}"

"""Fine-tunes with several values of several settings, each with several seeds; dev scores choose the best.

Every run has a folder of its own below the sweep's, so the same command resumes after any interruption, and
one with more values or seeds adds their runs.
"""

import copy
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import yaml
from etils import epath
from official.core import config_definitions as cfg

from xlnet_tf import figures, files, folders
from xlnet_tf.errors import UserError, prefixed
from xlnet_tf.tasks.finetuning import FinetuningTask, build_task
from xlnet_tf.tasks.metrics.table import metric_table
from xlnet_tf.tasks.seeds import Result, finetune_seeds, runs, trained_again
from xlnet_tf.training import checks
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.run import claim_model_dir
from xlnet_tf.training.task import Task

SUMMARY, PICTURE = "sweep.json", "sweep.svg"
_RANGE = re.compile(r"(?P<low>[^,:]+)\.\.(?P<high>[^,:]+)")
Point = Mapping[str, Any]  # by the names of the axes


class Axis(NamedTuple):
    """What one setting varies over: its values, or a range from low to high."""

    name: str
    values: tuple[Any, ...] = ()
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def parse(cls, text: str, is_text: Callable[[str], bool] = lambda name: False) -> "Axis":
        """Reads NAME:VALUE,VALUE,... or NAME:LOW..HIGH, as YAML values or, with is_text(NAME), texts."""
        name, colon, listed = text.partition(":")
        if not (name and colon and listed):
            raise UserError(f"--sweep={text}: expected NAME:VALUE,VALUE,... or NAME:LOW..HIGH")
        if match := _RANGE.fullmatch(listed):
            low, high = (yaml.load(end, yaml.FullLoader) for end in match.groups())
            if not all(type(end) in (int, float) for end in (low, high)) or not low < high:
                raise UserError(f"--sweep={text}: expected two numbers, the lower one first")
            return cls(name, low=low, high=high)
        missing = f"--sweep={text}: a value is missing, or there twice"
        if not all(map(str.strip, listed.split(","))):
            raise UserError(missing)
        try:
            values = tuple(yaml.load(f"[{listed}]", yaml.BaseLoader if is_text(name) else yaml.FullLoader))
        except (yaml.YAMLError, TypeError):
            raise UserError(
                f"--sweep={text}: {listed} is not a list of values: quote those with special characters, as "
                f"""--sweep='{name}:"a,b","[c"'"""
            ) from None
        if any(value is None or value in values[:number] for number, value in enumerate(values)):
            raise UserError(missing)
        return cls(name, values)

    def draw(self, generator: np.random.Generator) -> Any:
        """Draws a value; of a range above 0 on a logarithmic scale, as learning rates are chosen."""
        if self.values:
            return self.values[generator.integers(len(self.values))]
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        if self.low > 0:
            value = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = generator.uniform(self.low, self.high)
        return round(value) if whole else float(f"{value:.3g}")


def points(axes: Sequence[Axis], samples: int = 0, seed: int = 0) -> list[Point]:
    """Returns what to try: all combinations of the axes' values, or `samples` distinct random points."""
    names = [axis.name for axis in axes]
    if not names:
        raise UserError("--sweep_samples draws from a --sweep: give one")
    if len(set(names)) < len(names):
        raise UserError(f"--sweep names a setting twice: {', '.join(names)}")
    if samples:
        generator = np.random.default_rng(seed)
        drawn = [{axis.name: axis.draw(generator) for axis in axes} for _ in range(samples)]
        return [point for number, point in enumerate(drawn) if point not in drawn[:number]]
    if ranges := [axis.name for axis in axes if not axis.values]:
        raise UserError(f"--sweep: {', '.join(ranges)} has a range: say how many to draw, --sweep_samples=N")
    return [dict(zip(names, values)) for values in itertools.product(*(axis.values for axis in axes))]


@dataclasses.dataclass(frozen=True)
class Trial:
    """The results of one point, one for each seed."""

    point: Point
    folder: str
    results: list[Result]

    @property
    def values(self) -> list[float]:
        """The best metric of each seed on dev; of runs without, minus infinity if they failed, else nan."""
        return [
            result.best.get(result.metric, -math.inf if result.problem else math.nan)
            for result in self.results
        ]

    @property
    def median(self) -> float:
        """The median of the values; failed runs count as the worst."""
        return float(np.median(self.values))

    @property
    def failed(self) -> int:
        """How many runs have diverged or learned nothing."""
        return sum(bool(result.problem) for result in self.results)


def label(point: Point) -> str:
    """Returns a point's name, which its folder has, too."""
    return ",".join(f"{name}={re.sub(r'[^A-Za-z0-9._+-]', '_', str(value))}" for name, value in point.items())


class Training(NamedTuple):
    """What is about to be trained: settings and folder of each seed, and a warning of one trained again."""

    name: str
    params: cfg.ExperimentConfig
    task: Task
    runs: Sequence[tuple[cfg.ExperimentConfig, str]]
    again: str = ""


def trainings(
    variants: Sequence[tuple[Point, cfg.ExperimentConfig]],
    task_class: type[FinetuningTask],
    model_dir: str,
    num_seeds: int = 1,
    tpu_replicas: int = 0,
) -> Iterator[Training]:
    """Yields each variant with its task; see `sweep`. An empty point has no folder of its own.

    Raises:
        UserError: settings, examples and checkpoint of a variant do not fit together, two variants would have
            the same folder, or an added variant would make other batches than the existing ones.
    """
    seen: dict[str, Point] = {}
    chosen: dict[str, str] = {}  # without a setting, batching -> name of the first point that has it
    for point, settings in variants:
        name = label(point)
        if other := seen.get(name):
            raise UserError(f"--sweep: {dict(point)} and {dict(other)} would both have the folder {name}")
        seen[name] = point
        folder = f"{model_dir}/{name}" if point else model_dir
        with prefixed(name):
            params, first = next(runs(settings, folder, num_seeds))
            task = build_task(params, task_class, first, tpu_replicas)
        if not settings.task.batching and not tpu_replicas:  # a TPU's points may each have another
            chosen.setdefault(params.task.batching, name)
        if len(chosen) > 1:
            batchings = ", ".join(f"{batching} for {of}" for batching, of in chosen.items())
            begun = next(batching for batching in chosen if batching != "length")
            raise UserError(
                "all runs of a --sweep make their batches in the same way, and with those that are there "
                f"--batching would be {batchings}: add --batching={begun}, or choose another --model_dir"
            )
        again = trained_again(params, folder, num_seeds)
        yield Training(name, params, task, list(runs(params, folder, num_seeds)), again)


def sweep(
    variants: Sequence[tuple[Point, cfg.ExperimentConfig]],
    task_class: type[FinetuningTask],
    strategy: tf.distribute.Strategy,
    model_dir: str,
    num_seeds: int = 1,
) -> list[Trial]:
    """Fine-tunes with each variant, in a folder of its own; finished runs are not repeated.

    After each, model_dir/sweep.json lists those that are done. If a variant cannot be trained, none is.
    """
    model_dir = model_dir.rstrip("/")
    folders.claim(model_dir, folders.RUN, folders.RUNS, flag="--model_dir")
    on_tpu = variants[0][1].runtime.distribution_strategy == "tpu"
    tpu_replicas = strategy.num_replicas_in_sync if on_tpu else 0
    check(trainings(variants, task_class, model_dir, num_seeds, tpu_replicas), strategy)
    trials: list[Trial] = []
    with claim_model_dir(strategy, model_dir):
        for point, params in variants:
            folder = f"{model_dir}/{label(point)}"
            results = finetune_seeds(
                copy.deepcopy(params), task_class, strategy, folder, num_seeds, keep_going=True
            )
            trials.append(Trial(point, folder, results))
            if strategy.extended.should_checkpoint:  # of several hosts one writes
                content = [{**dataclasses.asdict(t), "median": t.median, "failed": t.failed} for t in trials]
                files.write_json(f"{model_dir}/{SUMMARY}", content)
    return trials


def check(planned: Iterable[Training], strategy: tf.distribute.Strategy):
    """Raises UserError unless each can begin or resume; nothing has been written then."""
    for training in planned:
        with prefixed(training.name):
            checks.check_batch_sizes(training.params, strategy.num_replicas_in_sync)
            checks.check_memory(training.params, training.task, strategy)
            trainer = training.params.trainer
            build_optimizer(trainer.optimizer_config, trainer.train_steps, training.task.n_layer)
            checks.check_inputs(training.params, training.task.data, strategy.num_replicas_in_sync)
            for params, folder in training.runs:
                checks.check_settings(params, folder)
                checks.check_resumable(params, training.task, folder)


def best(trials: Sequence[Trial]) -> Trial | None:
    """Returns the trial with the highest median on dev, of equals the one with fewer failures, if any."""
    learned = [trial for trial in trials if trial.failed < len(trial.results)]
    return max(
        learned, key=lambda trial: (np.nan_to_num(trial.median, nan=-math.inf), -trial.failed), default=None
    )


def table(trials: Sequence[Trial], split: str = "dev") -> str:
    """Returns the trials as a table, the best marked; `split` is the set that their values are of."""
    median, marked = f"median {trials[0].results[0].metric}", best(trials)
    rows: dict[str, dict[str, float | str]] = {
        label(trial.point): {
            median: trial.median,
            "lowest": min(trial.values),
            "highest": max(trial.values),
            "failed": f"{trial.failed} of {len(trial.results)}",
        }
        for trial in trials
    }
    if marked is None:
        failed = (
            f"Every run has diverged or learned nothing, so none is the best: {SUMMARY} says how each failed"
        )
        return f"{metric_table(rows)}\n{failed}"
    return metric_table(rows, notes={label(marked.point): f"<- best on {split}"})


def draw_picture(trials: Sequence[Trial], path: epath.PathLike) -> None:
    """Draws the value of each run and the median of each point."""
    figure = figures.new(8, 1.5 + 0.4 * len(trials))
    axes = figure.subplots()
    for row, trial in enumerate(trials):
        seen = [value for value in trial.values if math.isfinite(value)]
        axes.plot(seen, [row] * len(seen), "o", color="tab:blue", alpha=0.5)
        if math.isfinite(trial.median):
            axes.plot([trial.median], [row], "|", color="tab:red", markersize=18, markeredgewidth=3)
        if trial.failed:
            axes.annotate(f"{trial.failed} failed", (1, row), xycoords=("axes fraction", "data"), va="center")
    axes.set_yticks(range(len(trials)), [label(trial.point) for trial in trials])
    axes.invert_yaxis()
    axes.set(xlabel=f"{trials[0].results[0].metric} on dev: points are runs, bars medians")
    axes.grid(axis="x", alpha=0.3)
    figures.save(figure, path, dpi=100)

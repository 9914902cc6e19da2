"""Is a task learned better from the adapted weights? Both beginnings are fine-tuned with the same seeds."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from run_scripts.common import experiment
from xlnet_tf import task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet

BEFORE, AFTER = "before", "after"
_FLAG = "--task_config"
_SCORED_AT_ONCE = 32  # examples, or a few more so that all replicas have equally many


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How well a task was learned from both beginnings.

    Attributes:
        metric: its name.
        split: that it is of.
        examples: texts in it.
        trained_on: training examples.
        seeds: of the runs.
        scores: BEFORE and AFTER -> the metric for each seed, NaN for a run that diverged.
        problems: likewise, how runs failed.
    """

    metric: str
    split: str
    examples: int
    trained_on: int
    seeds: list[int]
    scores: Mapping[str, list[float]]
    problems: Mapping[str, list[str]]

    def counted(self, name: str) -> np.ndarray:
        """Returns the scores as they count: one of a run that diverged is the lowest."""
        return np.nan_to_num(self.scores[name], nan=-np.inf)

    def spread(self, name: str) -> tuple[float, float, float]:
        """Returns median, lowest and highest score; minus infinity stands for runs that diverged."""
        values = self.counted(name)
        return float(np.median(values)), float(values.min()), float(values.max())

    @property
    def wins(self) -> int:
        """With how many seeds the adapted weights did better."""
        return int(np.sum(self.counted(AFTER) > self.counted(BEFORE)))

    @property
    def verdict(self) -> str:
        """What the scores say, whichever way they fall."""
        (before, least_before, most_before), (after, least_after, most_after) = map(
            self.spread, (BEFORE, AFTER)
        )
        if after == before:
            value = f"{after:.4f}" if np.isfinite(after) else "most runs diverged"
            return f"The medians of {self.metric} are equal: {value}."
        better = "better" if after > before else "worse"
        clear = least_after > most_before or most_after < least_before
        sure = "every run is" if clear else "the runs overlap: more seeds may decide otherwise"
        difference = abs(after - before)
        by = f"by {difference:.4f} in" if np.isfinite(difference) else "in"
        return (
            f"Adapted weights are {better} {by} the median of {self.metric}, and "
            f"better with {self.wins} of {len(self.seeds)} seeds; {sure}{f' {better}' if clear else ''}."
        )

    def as_json(self) -> dict[str, Any]:
        """Returns all of it, and the verdict."""
        return dataclasses.asdict(self) | {"verdict": self.verdict}


class Task:
    """A task to compare on.

    Args:
        data: folder of built examples: train, dev and, if there is one, test.
        config: settings of fine-tuning, over its defaults: recipes, files or NAME=VALUE, in turn.
        num_seeds: how often to fine-tune from each beginning.
        runtime: the adaptation's devices and number type, which the fine-tuning shares.

    Raises:
        UserError: settings or examples are wrong, or settings ask for another runtime.
        FileNotFoundError: there are no examples.
    """

    def __init__(self, data: str, config: Sequence[str], num_seeds: int, runtime: Any):
        from official.core import exp_factory, task_factory

        from run_scripts import finetune
        from xlnet_tf.tasks import sweep
        from xlnet_tf.training.config import check_types, override

        self.sets = {"train": ExampleSet.load(f"{data}/train"), "dev": ExampleSet.load(f"{data}/dev")}
        entry = task_registry.of_examples(self.sets["train"])
        self._params = exp_factory.get_exp_config(entry.experiment)
        self._params.runtime = copy.deepcopy(runtime)
        for source in config:
            override(self._params, experiment.settings_file(source, _FLAG), _FLAG)
        check_types(self._params, exp_factory.get_exp_config(entry.experiment), _FLAG)
        _check_runtime(self._params.runtime, runtime)
        with sweep.named(_FLAG):
            limits = (*finetune.SETTINGS, *entry.settings)
            self._params = experiment.variant(self._params, entry.experiment, limits, {})
        self._params.task.train_data.input_path = f"{data}/train"
        self._params.task.validation_data.input_path = f"{data}/dev"
        self._class = task_factory.get_task_cls(type(self._params.task))
        self._num_seeds = num_seeds
        if (self.sets["train"].folder.parent / "test").exists():
            self.sets["test"] = ExampleSet.load(f"{data}/test")

    def check(self, before: str, strategy, folder: str) -> None:
        """Checks that the task can be learned, before anything is trained; takes what `compare` does.

        Raises:
            UserError: settings, examples, checkpoint, devices or earlier runs do not fit together.
        """
        from xlnet_tf.checkpoints import open_checkpoint
        from xlnet_tf.checkpoints.formats import other_architecture
        from xlnet_tf.tasks import sweep

        params = self._from(before)
        point = {"weights": BEFORE}
        replicas = strategy.num_replicas_in_sync
        on_tpu = params.runtime.distribution_strategy == "tpu"
        planned = sweep.trainings(
            [({}, params)],
            self._class,
            f"{folder}/{sweep.label(point)}",
            self._num_seeds,
            replicas if on_tpu else 0,
        )
        with sweep.named(f"fine-tuning on --task_data, with {_FLAG}"):
            (training,) = planned
            if other := other_architecture(open_checkpoint(before).config, training.task.xlnet_config):
                raise UserError(
                    f"{other}: expected the checkpoint's architecture. Leave these settings of task.model out"
                )
            sweep.check([training], strategy)

    def _from(self, checkpoint: str) -> Any:
        params = copy.deepcopy(self._params)
        params.task.init_checkpoint = checkpoint
        return params

    def compare(self, before: str, after: str, strategy, folder: str) -> Comparison:
        """Fine-tunes from both beginnings; what is finished is not done again.

        Args:
            before, after: the checkpoints.
            strategy: from `training.runtime.prepare`.
            folder: for the runs.
        """
        from xlnet_tf.tasks import seeds, sweep

        variants = [({"weights": BEFORE}, self._from(before)), ({"weights": AFTER}, self._from(after))]
        trials = sweep.sweep(variants, self._class, strategy, folder, self._num_seeds)
        split = next(s for s in ("test", "dev") if s in self.sets and self._class.has_answers(self.sets[s]))
        scores, problems = {}, {}
        for trial in trials:
            name = trial.point["weights"]
            folders = [each for _, each in seeds.runs(self._params, trial.folder, self._num_seeds)]
            scores[name] = [
                self._score(each, self.sets[split], strategy) if result.best else float("nan")
                for each, result in zip(folders, trial.results)
            ]
            problems[name] = [f"seed {r.seed}: {r.problem}" for r in trial.results if r.problem]
        return Comparison(
            metric=self._class.BEST_METRIC,
            split=split,
            examples=self.sets[split].records,
            trained_on=self.sets["train"].records,
            seeds=[result.seed for result in trials[0].results],
            scores=scores,
            problems=problems,
        )

    def _score(self, folder: str, examples: ExampleSet, strategy) -> float:
        from xlnet_tf.tasks.prediction import Predictor, Run

        run = Run.open(folder, str(examples.folder))
        replicas = strategy.num_replicas_in_sync
        batch_size = -(-_SCORED_AT_ONCE // replicas) * replicas
        predictions = Predictor(run, strategy, batch_size).predict(run.checkpoint(""))
        value = run.task.score(run.task.validation_set, predictions)[self._class.BEST_METRIC]
        return value / 100 if self._class.IN_PERCENT else value


def _check_runtime(found: Any, adaptation: Any) -> None:
    """Raises UserError if the fine-tuning is to run on other devices or in another number type."""
    expected = adaptation.as_dict()
    different = {name: value for name, value in found.as_dict().items() if value != expected[name]}
    if different:
        settings = ", ".join(
            f"runtime.{name} is {value!r}, and {expected[name]!r} for the adaptation"
            for name, value in different.items()
        )
        raise UserError(
            f"{_FLAG}: {settings}: expected the same runtime. Leave it out of {_FLAG}, and set it for both "
            "with --dtype, --strategy and the like, --config_file or --params_override"
        )

"""Is pretraining worth it? Fine-tunes on a few labelled texts, from pretrained weights and from scratch.

Next to both stands a baseline without a neural network. No labelled text was in the pretraining corpus.
"""

import abc
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from run_scripts.common import experiment
from xlnet_tf import task_registry

if TYPE_CHECKING:
    from xlnet_tf.records.examples import ExampleSet
    from xlnet_tf.tasks.prediction import Run


@dataclasses.dataclass(frozen=True)
class DemoTask(abc.ABC):
    """A task of the demo and its labelled texts; learning rates are chosen on the dev texts."""

    recipe: str
    pretrained_rates: tuple[float, ...]
    scratch_rates: tuple[float, ...]

    NAME: ClassVar[str]  # of its folders
    TITLE: ClassVar[str]
    TASK: ClassVar[str]  # of task_registry
    METRIC: ClassVar[str]  # its BEST_METRIC, for people
    LABELS: ClassVar[str]  # what it learns from, for people
    BASELINE: ClassVar[str]
    EXAMPLE: ClassVar[str]  # a text to ask about

    @abc.abstractmethod
    def write(self, corpora: pathlib.Path, folder: pathlib.Path) -> None:
        """Writes the labelled texts of train, dev and test, given the packages' folder."""

    @abc.abstractmethod
    def make_examples(self, folder: pathlib.Path, tokenizer: pathlib.Path, examples: pathlib.Path) -> None:
        """Builds the examples from the texts in a folder."""

    @abc.abstractmethod
    def baseline(self, folder: pathlib.Path) -> float:
        """Returns the baseline's METRIC on the test texts."""

    @abc.abstractmethod
    def answers(
        self, folder: pathlib.Path, test: "ExampleSet", predictions: Mapping[str, np.ndarray]
    ) -> list[tuple[str, str, str]]:
        """Returns texts, true answers and a model's answers, for the page."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """The metric on the test texts from one beginning, for each seed.

    `tried` has the metric on the dev texts by learning rate, with the first seed; `folder` is its run.
    """

    learning_rate: float
    tried: dict[float, float]
    test: tuple[float, ...]
    folder: str


@dataclasses.dataclass(frozen=True)
class DemoResult:
    """How well a task was learned from each beginning, next to a baseline; answers are as in DemoTask."""

    task: DemoTask
    pretrained: Arm
    scratch: Arm
    baseline: float
    answers: list[tuple[str, str, str]]

    @property
    def scores(self) -> dict[str, tuple[float, ...]]:
        """The metric of each way of learning on the test texts, for each seed."""
        return {
            "XLNet, pretrained": self.pretrained.test,
            "XLNet from scratch": self.scratch.test,
            self.task.BASELINE: (self.baseline,),
        }

    @property
    def medians(self) -> dict[str, float]:
        return {name: float(np.median(values)) for name, values in self.scores.items()}


class FineTuning:
    """Fine-tunes for a task; finished runs are not repeated."""

    def __init__(self, task: DemoTask, output: pathlib.Path):
        self._task, self._output = task, output
        self._folder = output / "finetuned" / task.NAME
        self._examples = self._folder / "examples"

    def compare(self, seeds: Sequence[int]) -> DemoResult:
        task, texts = self._task, self._output / self._task.NAME
        task.make_examples(texts, self._output / "tokenizer" / "spiece.model", self._examples)
        pretrained = self._arm("pretrained", task.pretrained_rates, seeds)
        scratch = self._arm("scratch", task.scratch_rates, seeds)
        run, predictions = self._predict(pretrained.folder)
        answers = task.answers(texts, run.task.validation_set, predictions)
        return DemoResult(task, pretrained, scratch, task.baseline(texts), answers)

    def _arm(self, beginning: str, learning_rates: Sequence[float], seeds: Sequence[int]) -> Arm:
        """Chooses the learning rate with the first seed, then trains with the others as well."""
        tried = {rate: self._finetune(beginning, rate, seeds[0]) for rate in learning_rates}
        best = max(tried, key=lambda rate: tried[rate][0])
        rest = [self._finetune(beginning, best, seed) for seed in seeds[1:]]
        return Arm(
            learning_rate=best,
            tried={rate: dev for rate, (dev, _) in tried.items()},
            test=tuple(test for _, test in (tried[best], *rest)),
            folder=self._run(beginning, best, seeds[0]),
        )

    def _run(self, beginning: str, learning_rate: float, seed: int) -> str:
        return str(self._folder / f"{beginning}-{learning_rate:g}-seed-{seed}")

    def _finetune(self, beginning: str, learning_rate: float, seed: int) -> tuple[float, float]:
        """Returns the metric of the best checkpoint on the dev texts, and on the test texts."""
        from xlnet_tf.tasks.finetuning import finetune
        from xlnet_tf.training.config import override

        params = self._defaults()
        override(params, str(experiment.RECIPES / self._task.recipe), "the demo's recipe")
        params.task.seed = seed
        params.task.train_data.input_path = str(self._examples / "train")
        params.task.validation_data.input_path = str(self._examples / "dev")
        params.trainer.optimizer_config.learning_rate = learning_rate
        if beginning == "pretrained":
            params.task.init_checkpoint = str(self._output / "model")
        else:  # the architecture alone
            params.task.model.config_file = str(self._output / "model" / "xlnet_config.json")
        folder, task = self._run(beginning, learning_rate, seed), self._entry.load("task")
        dev = finetune(params, task, self._strategy, folder)[task.BEST_METRIC]
        run, predictions = self._predict(folder)
        test = run.task.score(run.task.validation_set, predictions)[task.BEST_METRIC]
        print(
            f"  {pathlib.Path(folder).name}: {task.BEST_METRIC} {dev:.1%} on dev, {test:.1%} on test",
            flush=True,
        )
        return dev, test

    def _predict(self, folder: str) -> tuple["Run", dict[str, np.ndarray]]:
        from xlnet_tf.tasks.prediction import Predictor, Run

        run = Run.open(folder, str(self._examples / "test"))
        return run, Predictor(run, self._strategy, batch_size=50).predict(run.checkpoint("last"))

    @functools.cached_property
    def _entry(self) -> task_registry.TaskEntry:
        return task_registry.find(self._task.TASK)

    def _defaults(self):
        from official.core import exp_factory

        return exp_factory.get_exp_config(self._entry.experiment)

    @functools.cached_property
    def _strategy(self):
        from xlnet_tf.training import runtime

        return runtime.prepare(self._defaults().runtime)

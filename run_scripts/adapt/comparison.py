"""Compares the weights before and after adapting: both are fine-tuned on a task with the same seeds."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from official.core import exp_factory, task_factory

from run_scripts import finetune
from run_scripts.common import experiment, sweeps
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.checkpoints.formats import other_architecture
from xlnet_tf.differences import nested_differences
from xlnet_tf.errors import UserError, prefixed
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks import seeds, sweep
from xlnet_tf.tasks.prediction import Predictor, Run
from xlnet_tf.training.config import override

_FLAG = "--task_config"
_SCORED_AT_ONCE = 32  # examples, or a few more so that all replicas have equally many


class Task:
    """A task to compare on: `data` is a folder of built examples, with train, dev and perhaps test.

    `config` has fine-tuning settings over the defaults (recipes, files or NAME=VALUE, in order), `runtime`
    the adaptation's devices and number type, which the fine-tuning shares.
    """

    def __init__(self, data: str, config: Sequence[str], num_seeds: int, runtime: Any):
        self.sets = {split: ExampleSet.load(f"{data}/{split}") for split in ("train", "dev")}
        if (self.sets["train"].folder.parent / "test").exists():
            self.sets["test"] = ExampleSet.load(f"{data}/test")
        entry = task_registry.entry_for_set(self.sets["train"])
        params = exp_factory.get_exp_config(entry.experiment)
        params.runtime = copy.deepcopy(runtime)
        for source in config:
            override(params, experiment.settings_file(source, _FLAG), _FLAG)
        with prefixed(_FLAG):
            params = sweeps.variant(params, entry.experiment, (*finetune.SETTINGS, *entry.settings), {})
            for name, own, shared in nested_differences(params.runtime.as_dict(), runtime.as_dict()):
                raise UserError(
                    f"runtime.{name} is {own!r}, and {shared!r} for the adaptation: leave it out, and set it "
                    "for both with --dtype, --strategy and the like, --config_file or --params_override"
                )
        params.task.train_data.input_path = f"{data}/train"
        params.task.validation_data.input_path = f"{data}/dev"
        self._params, self._num_seeds = params, num_seeds
        self._class = task_factory.get_task_cls(type(params.task))

    def _variants(self, **checkpoints: str) -> list[tuple[dict[str, str], Any]]:
        found = [({"weights": name}, copy.deepcopy(self._params)) for name in checkpoints]
        for (_, params), checkpoint in zip(found, checkpoints.values()):
            params.task.init_checkpoint = checkpoint
        return found

    def check(self, before: str, strategy, folder: str) -> None:
        """Raises UserError if `compare` could not train from the weights `before`; trains nothing."""
        on_tpu = self._params.runtime.distribution_strategy == "tpu"
        replicas = strategy.num_replicas_in_sync if on_tpu else 0
        with prefixed(f"fine-tuning on --task_data, with {_FLAG}"):
            (training,) = planned = [
                *sweep.trainings(
                    self._variants(before=before), self._class, folder, self._num_seeds, replicas
                )
            ]
            if other := other_architecture(open_checkpoint(before).config, training.task.xlnet_config):
                raise UserError(
                    f"{other}: expected the checkpoint's architecture. Leave these settings of task.model out"
                )
            sweep.check(planned, strategy)

    def compare(self, before: str, after: str, strategy, folder: str) -> tuple[dict[str, Any], str]:
        """Fine-tunes from both sets of weights, in a folder; finished runs are not repeated.

        Returns the scores of each seed on test, or on dev if test has no answers, and a table of them.
        """
        variants = self._variants(before=before, after=after)
        trials = sweep.sweep(variants, self._class, strategy, folder, self._num_seeds)
        split = next(s for s in ("test", "dev") if s in self.sets and self._class.has_answers(self.sets[s]))
        for trial in trials:
            for number, (_, run) in enumerate(seeds.runs(self._params, trial.folder, self._num_seeds)):
                if (result := trial.results[number]).best:
                    score = {result.metric: self._score(run, str(self.sets[split].folder), strategy)}
                    trial.results[number] = dataclasses.replace(result, best=score)
        found = {
            "metric": trials[0].results[0].metric,
            "split": split,
            "examples": self.sets[split].records,
            "trained_on": self.sets["train"].records,
            "seeds": [result.seed for result in trials[0].results],
            "scores": {trial.point["weights"]: trial.values for trial in trials},
            "problems": {trial.point["weights"]: [r.problem for r in trial.results] for trial in trials},
        }
        return found, sweep.table(trials, split)

    def _score(self, folder: str, examples: str, strategy) -> float:
        run, replicas = Run.open(folder, examples), strategy.num_replicas_in_sync
        predictor = Predictor(run, strategy, -(-_SCORED_AT_ONCE // replicas) * replicas)
        predictions = predictor.predict(run.checkpoint(""))
        return run.task.score(run.task.validation_set, predictions)[run.task.BEST_METRIC]

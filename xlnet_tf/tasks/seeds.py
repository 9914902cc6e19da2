"""Fine-tuning with several seeds: large models fail on some of them, so one run says little."""

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from official.core import config_definitions as cfg

from xlnet_tf import files, folders
from xlnet_tf.checkpoints.model_card import BEST, PARAMS_FILE
from xlnet_tf.tasks.finetuning import FinetuningTask, finetune, keep_batches
from xlnet_tf.tasks.metrics.table import metric_table
from xlnet_tf.tasks.scoring import UNREACHED
from xlnet_tf.training.early_stopping import read_metrics
from xlnet_tf.training.guard import Diverged
from xlnet_tf.training.progress import HISTORY, read_history
from xlnet_tf.training.run import claim_model_dir

SUMMARY = "seeds.json"
_LEARNED = 0.95  # of its first value, which the training loss must have fallen below
_WIDE = 512  # d_model, from which on a model is like the released ones


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of one seed."""

    seed: int
    metric: str  # name of the metric that counts
    last: dict  # metrics of the last evaluation
    best: dict  # metrics of the best evaluation, and its step
    problem: str = ""  # how the run failed: diverged, or learned nothing; else empty
    advice: str = ""  # what to try then, a sentence without a full stop, or empty


def finetune_seeds(
    params: cfg.ExperimentConfig,
    task_class: type[FinetuningTask],
    strategy: tf.distribute.Strategy,
    model_dir: str,
    num_seeds: int = 1,
    keep_going: bool = False,
) -> list[Result]:
    """Fine-tunes with seeds params.task.seed, + 1, ...; finished seeds are not trained again.

    Several have folders seed-N in model_dir, and all are tried; a single one may raise Diverged, unless
    `keep_going`. The results are also in model_dir/seeds.json.
    """
    model_dir = model_dir.rstrip("/")  # FOLDER//NAME is another object of a bucket
    folders.claim(model_dir, folders.RUN, folders.RUNS, flag="--model_dir")
    results = []
    if again := trained_again(params, model_dir, num_seeds):
        logging.warning("%s", again)
    # Of one seed, the folder is the run's own.
    with claim_model_dir(strategy, model_dir) if num_seeds > 1 else contextlib.nullcontext():
        for run_params, folder in runs(params, model_dir, num_seeds):
            tf_keras.backend.clear_session()
            try:
                results.append(_finetune_seed(run_params, task_class, strategy, folder))
            except Diverged as error:
                if num_seeds == 1 and not keep_going:
                    raise
                problem = f"diverged: {error}"
                metric = task_class(run_params.task).BEST_METRIC
                results.append(Result(run_params.task.seed, metric, {}, {}, problem))
        if strategy.extended.should_checkpoint:  # of several hosts one writes
            files.write_json(f"{model_dir}/{SUMMARY}", [dataclasses.asdict(result) for result in results])
    return results


def runs(
    params: cfg.ExperimentConfig, model_dir: str, num_seeds: int
) -> Iterator[tuple[cfg.ExperimentConfig, str]]:
    """Yields the settings and the folder of each seed's run; an added seed takes over the others' batches."""
    seeds = range(params.task.seed, params.task.seed + num_seeds)
    folders = [f"{model_dir}/seed-{seed}" if num_seeds > 1 else model_dir for seed in seeds]
    for seed, folder in zip(seeds, folders):
        run_params = copy.deepcopy(params)
        run_params.task.seed = seed
        for known in (folder, *folders):
            if keep_batches(run_params, known):
                break
        yield run_params, folder


def trained_again(params: cfg.ExperimentConfig, model_dir: str, num_seeds: int) -> str:
    """Warns, if there is an existing run, that it is not resumed: one seed and several differ in folders."""
    seed, is_one = params.task.seed, tf.io.gfile.exists(f"{model_dir}/{PARAMS_FILE}")
    are_several = tf.io.gfile.exists(f"{model_dir}/seed-{seed}/{PARAMS_FILE}")
    if is_one == are_several or are_several == (num_seeds > 1):
        return ""
    existing = "runs of several seeds" if are_several else "a run of one seed"
    return (
        f"{model_dir} has {existing}, which --num_seeds={num_seeds} does not resume: seed {seed} is trained "
        f"again, in {'this folder' if are_several else f'seed-{seed}'}"
    )


def _finetune_seed(params, task_class, strategy, folder: str) -> Result:
    last = finetune(params, task_class, strategy, folder)
    best, task = read_metrics(f"{folder}/{BEST}"), task_class(params.task)
    problem = _problem(task, last, folder)
    if shortfall := task.shortfall(best):
        logging.warning("%s: %s", folder, shortfall + UNREACHED)
    advice = _advice(params.trainer.optimizer_config.learning_rate, task) if problem else ""
    return Result(params.task.seed, task.BEST_METRIC, last, best, problem, advice)


def _problem(task: FinetuningTask, last: Mapping[str, float], model_dir: str) -> str:
    """Says how a finished run has failed; empty if it has not."""
    constant = task.constant_score(task.validation_set) if last else None
    if constant is not None:
        failed = last[task.BEST_METRIC] <= constant
        return f"learned nothing: the same answer for every text scores {constant:.4f}" if failed else ""
    losses = [
        line["training_loss"] for line in read_history(f"{model_dir}/{HISTORY}") if line["kind"] == "train"
    ]
    tenth = max(1, len(losses) // 10)
    if len(losses) > 1 and np.mean(losses[-tenth:]) >= _LEARNED * np.mean(losses[:tenth]):
        return "learned nothing: the loss did not fall"
    return ""


def _advice(rate: float, task: FinetuningTask) -> str:
    models, low, high = "tiny models", 3e-4, 3e-3
    if task.xlnet_config.d_model >= _WIDE:
        models, low, high = "models of the released sizes", 1e-5, 5e-5
    other = "" if low <= rate <= high else f"a {'higher' if rate < low else 'lower'} --learning_rate, "
    return (
        f"Try {other}more --epochs, a longer --warmup_fraction or another --seed, with a new --model_dir: "
        f"rates from {low:g} to {high:g} suit {models}, and this run had {rate:g}"
    )


def table(results: Sequence[Result]) -> str:
    """Returns the results as a table: a row each, and the medians, failed runs included."""
    if not results[0].last and not results[0].problem:
        return "trained without an evaluation"
    metric = results[0].metric
    best_metric = f"best {metric}"
    known = dict.fromkeys(name for result in results for name in result.last)  # diverged runs have none
    names = [best_metric, metric, *(name for name in known if name != metric)]
    rows = {
        str(result.seed): {best_metric: result.best.get(metric, math.nan), metric: math.nan, **result.last}
        for result in results
    }
    if len(results) > 1:
        # A diverged run counts as the worst; of other metrics than the one that counts, lower may be better.
        failed = {str(result.seed): -math.inf for result in results if not result.last}
        rows["median"] = {
            name: _median(
                [
                    failed.get(seed, values[name]) if name in names[:2] else values.get(name, math.nan)
                    for seed, values in rows.items()
                ]
            )
            for name in names
        }
    problems = [f"seed {result.seed}: {result.problem}" for result in results if result.problem]
    advice = dict.fromkeys(result.advice for result in results if result.advice)
    return "\n".join([metric_table(rows, "seed"), *problems, *advice])


def _median(values: Sequence[float]) -> float:
    """Returns the median; of whole numbers, such as counts, a whole number if possible."""
    median = float(np.median(values))
    return int(median) if all(isinstance(value, int) for value in values) and median.is_integer() else median

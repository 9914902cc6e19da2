r"""Evaluates all checkpoints of a fine-tuned run: says which is best.

    python -m run_scripts.evaluate --model_dir=runs/sst-2 --data=records/sst-2/dev

Prints a table, a row for each checkpoint, and writes it to evaluations.json in --output_dir. The best is the
one with the highest value of the task's main metric; on a tie, the weights kept as best. Of the best, it
also prints how sure each metric is (95 % intervals) and how well its probabilities are calibrated, and
writes evaluation.json, reliability.svg and thresholds.svg. Devices are those of the training, unless flags
say otherwise. With --against=RUN the best weights of both are compared, with a paired test:

    python -m run_scripts.evaluate --model_dir=runs/b --against=runs/a --data=records/sst-2/dev
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from absl import logging
from etils import epath

from run_scripts.common import experiment, training_flags
from xlnet_tf import errors, files, folders, hub
from xlnet_tf import flags as flags_lib
from xlnet_tf.errors import UserError
from xlnet_tf.flags import from_flags, option
from xlnet_tf.progress_bar import ProgressBar


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is evaluated, on which examples, and what is reported."""

    model_dir: str = option("Folder of the fine-tuned run, or other fine-tuned weights.", group="model")
    data: str = option("Folder of a set of examples with answers.", group="data")
    output_dir: str = option("Where evaluations.json goes; empty: --model_dir.", "", group="output")
    checkpoint: str = option("Only this one: best, last, or as ckpt-100; empty: all.", "", group="model")
    against: str = option(
        "Another run, to compare its best weights on --data, or RUN/ckpt-STEP, one of its checkpoints.",
        "",
        group="model",
    )
    samples: int = option("Samples of the bootstrap for intervals; 0: no intervals.", 1000, least=0)
    batch_size: int = option("Examples per step, all devices.", 32, least=1, most=training_flags.ROWS - 1)


def define_flags():
    flags_lib.define_flags(EvaluateOptions)
    training_flags.define_devices()


def open_run(path: str, options: EvaluateOptions):
    """Opens a run, or RUN/ckpt-STEP, on the examples; returns it and the checkpoint's name or ""."""
    from xlnet_tf.tasks.prediction import Run

    folder, checkpoint = experiment.run_and_checkpoint(path)
    run = Run.open(folder, options.data)
    experiment.override_by_flags(run.params, training_flags.DEVICES, training_flags.given_devices())
    return run, checkpoint


def main(_: Sequence[str]):
    options = from_flags(EvaluateOptions)
    if options.output_dir:
        folders.claim(options.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
    hub.require(options.model_dir)
    from run_scripts.common import evaluation
    from xlnet_tf.tasks.prediction import Predictor
    from xlnet_tf.training import runtime

    if options.against and not options.samples:
        raise UserError("--against compares by samples: leave out --samples=0")
    options = experiment.split_checkpoint(options)
    run, _ = open_run(options.model_dir, options)
    other, other_checkpoint = None, ""
    if options.against:
        with errors.prefixed(f"--against={options.against}"):
            other, name = open_run(options.against, options)
            other_checkpoint = other.checkpoint(name)
    examples, task = run.task.validation_set, run.task
    if not task.has_answers(examples):
        raise UserError(f"{options.data} has no answers: expected examples to score; use predict")
    paths = [run.checkpoint(options.checkpoint)] if options.checkpoint else run.checkpoints()
    strategy = runtime.prepare(run.params.runtime)
    with ProgressBar(unit="text", dynamic_ncols=True) as bar:
        predictor = Predictor(run, strategy, options.batch_size, on_step=bar.update)
        bar.reset(total=examples.records * (len(paths) + bool(other)))
        results, best_predictions, against = {}, {}, None
        for path in paths:
            name = path.rpartition("/")[2]
            bar.set_description(name)
            predictions = predictor.predict(path, warn=False)
            results[name] = task.score(examples, predictions)
            if best(results, task.BEST_METRIC) == name:
                best_predictions = predictions
        if other:
            bar.set_description(options.against)
            predictor = Predictor(other, strategy, options.batch_size, on_step=bar.update)
            against = other.task, predictor.predict(other_checkpoint)
    task.warn_if_collapsed(examples, best_predictions)
    report = evaluation.report(task, examples, best_predictions, against, options.samples)
    best_scores = results[best(results, task.BEST_METRIC)]
    if text := task.shortfall(best_scores):
        logging.warning("%s: %s", options.data, text)
    tables = (
        table(results, task.BEST_METRIC),
        task.tables(examples, best_predictions),
        evaluation.table(report, best_scores, options.against),
    )
    print("\n\n".join(filter(None, tables)))
    folder = epath.Path(options.output_dir or options.model_dir)
    if options.output_dir or folder.is_dir():  # not a file or a name
        folder = files.make_folder(folder)
        files.write_json(folder / "evaluations.json", results)
        names = ["evaluations.json", *evaluation.write(report, folder)]
        print(f"\nwritten to {folder}: {', '.join(names)}")


def best(results: dict[str, dict[str, float]], metric: str) -> str:
    """Returns the checkpoint with the highest metric; of several, the weights kept as best, or the first."""
    from xlnet_tf.checkpoints.model_card import BEST

    return max(results, key=lambda name: (np.nan_to_num(results[name][metric], nan=-np.inf), name == BEST))


def table(results: dict[str, dict[str, float]], metric: str) -> str:
    """Returns a table of metrics, a row for each checkpoint, the best marked."""
    from xlnet_tf.tasks.metrics.table import metric_table

    rows = {name: {metric: result[metric], **result} for name, result in results.items()}
    return metric_table(rows, notes={best(results, metric): "<- best"})


if __name__ == "__main__":
    define_flags()
    errors.run(main)

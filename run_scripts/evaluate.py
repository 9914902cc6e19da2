r"""Evaluates all checkpoints of a fine-tuned run: says which is best.

    python -m run_scripts.evaluate --model_dir=runs/sst-2 --data=records/sst-2/dev

Prints a table, a row for each checkpoint, and writes it to evaluations.json in --output_dir. The best is the
one with the highest value of the task's main metric; on a tie, the weights kept as best. Of the best, it
also prints how sure each metric is (95 % intervals) and how well its probabilities are calibrated, and
writes evaluation.json, reliability.svg and thresholds.svg. Devices are those of the training, unless flags
say otherwise. With --against=RUN the best weights of both are compared, with a paired test:

    python -m run_scripts.evaluate --model_dir=runs/b --against=runs/a --data=records/sst-2/dev
"""

from collections.abc import Sequence

import numpy as np
from absl import flags, logging
from etils import epath

from run_scripts.common import experiment, training_flags
from xlnet_tf import errors, files, folders, hub
from xlnet_tf.progress_bar import ProgressBar


def define_flags():
    flags.DEFINE_string(
        "model_dir", None, "Folder of the fine-tuned run, or other fine-tuned weights.", required=True
    )
    flags.DEFINE_string("data", None, "Folder of a set of examples with answers.", required=True)
    flags.DEFINE_string("output_dir", "", "Where evaluations.json goes; empty: --model_dir.")
    flags.DEFINE_string("checkpoint", "", "Only this one: best, last, or as ckpt-100; empty: all.")
    flags.DEFINE_string(
        "against",
        "",
        "Another run, to compare its best weights on --data, or RUN/ckpt-STEP, one of its checkpoints.",
    )
    flags.DEFINE_integer("samples", 1000, "Samples of the bootstrap for intervals; 0: no intervals.", 0)
    flags.DEFINE_integer("batch_size", 32, "Examples per step, all devices.", 1, training_flags.ROWS - 1)
    for setting in training_flags.DEVICES:
        setting.define()


def main(_: Sequence[str]):
    values = flags.FLAGS
    if values.output_dir:
        folders.claim(values.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
    hub.require(values.model_dir)
    from run_scripts.common import evaluation
    from xlnet_tf.tasks.prediction import Predictor, Run
    from xlnet_tf.training import runtime

    if values.against and not values.samples:
        raise errors.UserError("--against compares by samples: leave out --samples=0")
    experiment.split_checkpoint(values)
    run = Run.open(values.model_dir, values.data)
    other = None
    if values.against:
        with errors.prefixed(f"--against={values.against}"):
            folder, other_checkpoint = experiment.run_and_checkpoint(values.against)
            other = Run.open(folder, values.data)
            other_checkpoint = other.checkpoint(other_checkpoint)
    experiment.override_by_flags(run.params, training_flags.DEVICES, values)
    examples, task = run.task.validation_set, run.task
    if not task.has_answers(examples):
        raise errors.UserError(f"{values.data} has no answers: expected examples to score; use predict")
    paths = [run.checkpoint(values.checkpoint)] if values.checkpoint else run.checkpoints()
    strategy = runtime.prepare(run.params.runtime)
    with ProgressBar(unit="text", dynamic_ncols=True) as bar:
        predictor = Predictor(run, strategy, values.batch_size, on_step=bar.update)
        bar.reset(total=examples.records * (len(paths) + bool(other)))
        results, best_predictions, against = {}, {}, None
        for path in paths:
            name = path.rpartition("/")[2]
            bar.set_description(name)
            predictions = predictor.predict(path)
            results[name] = task.score(examples, predictions)
            if best(results, task.BEST_METRIC) == name:
                best_predictions = predictions
        if other:
            bar.set_description(values.against)
            experiment.override_by_flags(other.params, training_flags.DEVICES, values)
            predictor = Predictor(other, strategy, values.batch_size, on_step=bar.update)
            against = other.task, predictor.predict(other_checkpoint)
    print(table(results, task.BEST_METRIC))
    if text := task.tables(examples, best_predictions):
        print(f"\n{text}")
    if text := task.shortfall(results[best(results, task.BEST_METRIC)]):
        logging.warning("%s: %s", values.data, text)
    found = evaluation.report(task, examples, best_predictions, against, values.samples)
    if text := evaluation.table(found, results[best(results, task.BEST_METRIC)], values.against):
        print(f"\n{text}")
    folder = epath.Path(values.output_dir or values.model_dir)
    if values.output_dir or folder.is_dir():  # not a file or a name
        folder = files.make_folder(folder)
        files.write_json(folder / "evaluations.json", results)
        names = ["evaluations.json", *evaluation.write(found, folder)]
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

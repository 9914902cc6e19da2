"""Predicts for a set of examples with a fine-tuned run: writes the task's files."""

from collections.abc import Mapping
from typing import Any

from absl import logging

from run_scripts.common import experiment, training_flags
from run_scripts.common.predicting.options import PredictOptions
from xlnet_tf import files, ownership
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.job_notes import JobNotes
from xlnet_tf.tasks.prediction import Predictor, Run
from xlnet_tf.tasks.scoring import UNREACHED
from xlnet_tf.training import runtime


def predict(options: PredictOptions, devices: Mapping[str, Any]) -> None:
    """Writes the predictions and prints their scores, where the examples have answers."""
    run = Run.open(options.model_dir, options.data)
    experiment.override_by_flags(run.params, training_flags.DEVICES, devices)
    examples, task = run.task.validation_set, run.task
    checkpoint = run.checkpoint(options.checkpoint)
    if text := task.shortfall(task.best_metrics()):
        logging.warning("%s: %s", options.model_dir, text + UNREACHED)
    strategy = runtime.prepare(run.params.runtime)
    folder = files.make_folder(options.output_dir)
    pieces = str(folder / "unfinished_predictions")
    with ownership.folder_lease(folder, "predicting", "--output_dir") as owner:
        with ProgressBar(desc="predict", unit="text", dynamic_ncols=True) as bar:
            predictor = Predictor(run, strategy, options.batch_size, on_step=bar.update)
            bar.reset(total=examples.records)
            predictions = predictor.predict(checkpoint, pieces)
        owner.check()
        print(f"weights: {checkpoint}")
        for path in task.write_predictions(examples, predictions, str(folder)):
            print(f"  {path}")
        JobNotes(pieces).remove()
    if task.has_answers(examples):
        for name, value in task.score(examples, predictions).items():
            print(f"{name:>24}  {value:.4f}")
        if text := task.tables(examples, predictions):
            print(f"\n{text}")

r"""Compares what our model and Model Garden's learn: both train alike.

    python -m run_scripts.benchmark_learning --train_data=records/train --dev_data=records/dev \
        --output_dir=runs/benchmark_learning

All have the same size, dropout, optimizer, schedule and number of steps, see the same batches in the same
order, and have no memory; each begins with its own initial weights, drawn with the same seed. Records are of
one direction, as Model Garden takes directions from the position in the batch: build them with
tfrecord_builders.pretraining --nobidirectional.
Writes report.json and loss.png: the loss of each on all dev records, at intervals. --tpu_form trains ours
once more, in the form that it has on TPUs: positions rotated, and dropout on them alike for all distances.
--recipe=small_fast also trains ours as a recipe of pretraining says: its model, rows, optimizer and number of
steps, evenly spread over the run. The report states the time of these steps as a share of Model Garden's.
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from run_scripts.benchmark import timing
from run_scripts.benchmark_learning.measure import TrainingSettings, draw, table, train_both
from xlnet_tf import errors, folders
from xlnet_tf import flags as options
from xlnet_tf.config import PRESETS, XLNetConfig
from xlnet_tf.records.manifest import Manifest


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    folders.claim(values.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
    report = {"machine": timing.machine()} | train_both(
        XLNetConfig.preset(values.preset),
        Manifest.load(values.train_data),
        Manifest.load(values.dev_data),
        options.from_flags(TrainingSettings),
        values.tpu_form,
        values.recipe,
    )
    folder = pathlib.Path(values.output_dir)
    timing.write(report, table(report), str(folder / "report.json"))
    draw(report, folder / "loss.png")
    print(folder / "loss.png")


if __name__ == "__main__":
    flags.DEFINE_string("train_data", None, "folder of records to train on")
    flags.DEFINE_string("dev_data", None, "folder of records to evaluate on")
    flags.DEFINE_string("output_dir", None, "folder for report.json and loss.png")
    flags.mark_flags_as_required(["train_data", "dev_data", "output_dir"])
    flags.DEFINE_enum("preset", "tiny", list(PRESETS), "size of the model")
    options.define_flags(TrainingSettings)
    flags.DEFINE_bool("tpu_form", False, "also train our model in the form that it has on TPUs")
    flags.DEFINE_string(
        "recipe",
        None,
        "also train our model as this recipe says (model, rows, optimizer, steps), without memory",
    )
    errors.run(main)

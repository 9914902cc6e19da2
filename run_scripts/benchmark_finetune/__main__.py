"""Measures fine-tuning and prediction on the CPU: next to the peers', every figure from this one run.

    python -m run_scripts.benchmark_finetune --data=records/sst-2/train --layers=6 --peer_python=PYTHON

Each trains one epoch on the same sample of a classification set: forward, backward, clipping, AdamW.

  length        ours, batching by length: examples of like length in a batch, rows cut to it.
  packed        ours, packed batching: several examples in a row, in random order.
  fixed         ours, fixed batching: whole rows.
  hf dynamic    Hugging Face's XLNetForSequenceClassification in PyTorch, with our weights, in a process of
                --peer_python: random batches, padded to the longest row, the default of its Trainer.
  hf grouped    the same with group_by_length, also the Trainer's: like lengths come together.
  model_garden  Model Garden's XLNetClassifier on whole rows; --peer_steps steps of it, not the epoch.

They run in turn, a part of the epoch each, so that a disturbance hits all alike. Fixed costs are included:
the graphs that TensorFlow traces. Then all predict the labels of the sample, sorted by length.
"""

from collections.abc import Sequence

from absl import flags

from run_scripts.benchmark import timing
from run_scripts.benchmark_finetune.measure import Plan, measure, table
from xlnet_tf import errors
from xlnet_tf.flags import define_flags, from_flags


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    report = {"machine": timing.machine()} | measure(
        timing.config_of_flags(), from_flags(Plan), peer_python=values.peer_python
    )
    timing.write(report, table(report), values.output)


if __name__ == "__main__":
    timing.define_flags(repeats=1)
    define_flags(Plan)
    errors.run(main)

r"""Builds pretraining records from a corpus: streams of segments with precomputed permutation masks.

    python -m tfrecord_builders.pretraining --input='corpus/*.gz' --tokenizer=spiece.model \
        --output_dir=records

The output folder gets the shards, a copy of the tokenizer and, last of all, manifest.json; with
--dev_fraction, two such folders, train and dev. Run it again after an interruption: finished shards are kept.
"""

from collections.abc import Sequence

from tfrecord_builders.pretraining import report as pretraining_report
from tfrecord_builders.pretraining.build import build_sets
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf import errors
from xlnet_tf.cli import command_line
from xlnet_tf.flags import define_flags, from_flags


def main(_: Sequence[str]) -> None:
    for manifest in build_sets(from_flags(PretrainingOptions), progress=True):
        print(f"Pretraining records are ready ({manifest.split}):\n{pretraining_report.summary(manifest)}")
        for warning in pretraining_report.warnings(manifest):
            print(f"WARNING: {warning}")


if __name__ == "__main__":
    define_flags(PretrainingOptions)
    command_line.require_one_of("input", "tfds_name")
    errors.run(main, after_ctrl_c="the same command resumes the build, finished shards are kept")

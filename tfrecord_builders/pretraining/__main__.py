r"""Builds pretraining records from a corpus: streams of segments with precomputed permutation masks.

    python -m tfrecord_builders.pretraining --input='corpus/*.gz' --tokenizer=spiece.model \
        --output_dir=records

The output folder gets the shards, a copy of the tokenizer and, last of all, manifest.json; with
--dev_fraction, two such folders, train and dev. Run it again after an interruption: finished shards are kept.
"""

from collections.abc import Sequence

from tfrecord_builders.pretraining import options as pretraining_options
from tfrecord_builders.pretraining import report as pretraining_report
from tfrecord_builders.pretraining.build import build_sets
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf import errors


def main(argv: Sequence[str]) -> None:
    del argv
    for manifest in build_sets(PretrainingOptions.from_flags(), progress=True):
        print(f"Pretraining records are ready ({manifest.split}):\n{pretraining_report.summary(manifest)}")
        for warning in pretraining_report.warnings(manifest):
            print(f"WARNING: {warning}")


if __name__ == "__main__":
    pretraining_options.define_flags()
    errors.run(main)

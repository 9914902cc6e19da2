r"""Builds examples of classification and regression: texts or pairs of texts with labels or values.

    python -m tfrecord_builders.classification --train=train.csv --dev=dev.csv --text_column=text \
        --label_column=label --tokenizer=spiece.model --output_dir=records/mine
    python -m tfrecord_builders.classification --preset=sst-2 --data_dir=glue/SST-2 --tokenizer=spiece.model \
        --output_dir=records/sst-2

Each split becomes a folder of --output_dir. All rows are read and checked before any example is written.
"""

from collections.abc import Sequence

from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.classification.presets import PRESETS
from tfrecord_builders.common.example_builder import BUILDS_ANEW, SPLITS
from xlnet_tf import errors
from xlnet_tf.cli import command_line
from xlnet_tf.flags import define_flags, from_flags
from xlnet_tf.records import example_report


def main(_: Sequence[str]) -> None:
    options = from_flags(ClassificationOptions)
    built = build_classification(options, progress=True)
    print(example_report.summary(built))
    if options.preset:
        for split, source in PRESETS[options.preset].sources.items():
            if split not in built:
                print(f"{split}: {source.file} is not there, left out")


if __name__ == "__main__":
    define_flags(ClassificationOptions)
    command_line.require_one_of(*SPLITS, "preset")
    errors.run(main, after_ctrl_c=BUILDS_ANEW)

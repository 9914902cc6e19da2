r"""Builds examples of extractive question answering from SQuAD 1.1 or 2.0, or your own data in their format.

    python -m tfrecord_builders.squad --train=train-v2.0.json --dev=dev-v2.0.json --tokenizer=spiece.model \
        --output_dir=records/squad

An example is a window of a passage with the question, [passage SEP question SEP CLS], padded on the right.
A passage that is too long gives several windows that overlap. Beside the examples of a split lie
passages.jsonl, the passages with the place of each token, from which answers are read, and skipped.jsonl,
every question that is not among the examples, with the reason.
"""

from collections.abc import Sequence

from tfrecord_builders.common.options import SPLITS
from tfrecord_builders.squad.build import SquadOptions, build_squad
from xlnet_tf import command_line, errors
from xlnet_tf.flags import define_flags, from_flags
from xlnet_tf.records import example_report


def main(argv: Sequence[str]) -> None:
    del argv
    print(example_report.summary(build_squad(from_flags(SquadOptions), progress=True)))


if __name__ == "__main__":
    define_flags(SquadOptions)
    command_line.require_one_of(*SPLITS)
    errors.run(main)

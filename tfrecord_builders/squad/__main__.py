r"""Builds examples of extractive question answering from SQuAD 1.1 or 2.0, or your own data in their format.

    python -m tfrecord_builders.squad --train=train-v2.0.json --dev=dev-v2.0.json --tokenizer=spiece.model \
        --output_dir=records/squad

An example is a window of a passage with the question, [passage SEP question SEP CLS], padded on the right.
A passage that is too long gives several windows that overlap. Beside the examples of a split lie
passages.jsonl, the passages with the place of each token, from which answers are read, and skipped.jsonl,
every question that is not among the examples, with the reason.
"""

from collections.abc import Sequence

from absl import flags

from tfrecord_builders.common import example_flags
from tfrecord_builders.squad.build import SPLITS, SquadOptions, build_squad
from xlnet_tf import command_line, errors
from xlnet_tf.records import example_report


def define_flags() -> None:
    """Defines one flag for each field of SquadOptions."""
    default = example_flags.define(SquadOptions)
    for split in SPLITS:
        flags.DEFINE_string(split, default[split], f"json file of the {split} split, plain or .gz")
    flags.DEFINE_integer("seq_len", default["seq_len"], "tokens of a window with its question", lower_bound=5)
    flags.DEFINE_integer(
        "max_question_len",
        default["max_question_len"],
        "most tokens of a question; the rest is cut",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "stride", default["stride"], "tokens from one window of a passage to the next", lower_bound=1
    )


def main(argv: Sequence[str]) -> None:
    del argv
    print(example_report.summary(build_squad(example_flags.options(SquadOptions), progress=True)))


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("train", "dev", "test")
    errors.run(main)

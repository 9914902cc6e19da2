r"""Builds examples of multiple choice, RACE's or your own: one record holds a sequence for each option.

    python -m tfrecord_builders.race --train=RACE/train --dev=RACE/dev --test=RACE/test \
        --tokenizer=spiece.model --output_dir=records/race

A sequence is [context SEP question and option SEP CLS]. The option takes the place of the blank `_` in the
question, or follows the question. --train, --dev and --test are folders of RACE's .txt files, or jsonl files
(see race_questions.read_questions), several with commas between them.
"""

from collections.abc import Sequence

from absl import flags

from tfrecord_builders.common import example_flags
from tfrecord_builders.race.build import SPLITS, RaceOptions, build_race
from xlnet_tf import command_line, errors
from xlnet_tf.records import example_report


def define_flags() -> None:
    """Defines one flag for each field of RaceOptions."""
    default = example_flags.define(RaceOptions)
    for split in SPLITS:
        flags.DEFINE_list(
            split,
            [],
            f"questions of the {split} split: folders of RACE's .txt files, or .jsonl files, plain or .gz",
        )
    flags.DEFINE_integer("seq_len", default["seq_len"], "tokens of a sequence", lower_bound=5)
    flags.DEFINE_integer(
        "max_qa_len", default["max_qa_len"], "most tokens of a question with an option", lower_bound=1
    )


def main(argv: Sequence[str]) -> None:
    del argv
    print(example_report.summary(build_race(example_flags.options(RaceOptions), progress=True)))


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("train", "dev", "test")
    errors.run(main)

r"""Builds examples of multiple choice, RACE's or your own: one record holds a sequence for each option.

    python -m tfrecord_builders.race --train=RACE/train --dev=RACE/dev --test=RACE/test \
        --tokenizer=spiece.model --output_dir=records/race

A sequence is [context SEP question and option SEP CLS]. The option takes the place of the blank `_` in the
question, or follows the question. --train, --dev and --test are folders of RACE's .txt files, or jsonl files
(see race_questions.read_questions), several with commas between them.
"""

from collections.abc import Sequence

from tfrecord_builders.common.options import SPLITS
from tfrecord_builders.race.build import RaceOptions, build_race
from xlnet_tf import command_line, errors
from xlnet_tf.flags import define_flags, from_flags
from xlnet_tf.records import example_report


def main(argv: Sequence[str]) -> None:
    del argv
    print(example_report.summary(build_race(from_flags(RaceOptions), progress=True)))


if __name__ == "__main__":
    define_flags(RaceOptions)
    command_line.require_one_of(*SPLITS)
    errors.run(main)

r"""Builds examples of multiple choice, RACE's or your own: one record holds a sequence for each option.

    python -m tfrecord_builders.race --train=RACE/train --dev=RACE/dev --test=RACE/test \
        --tokenizer=spiece.model --output_dir=records/race

A sequence is [context SEP question and option SEP CLS]. The option replaces the blank `_` in the
question, or follows the question. --train, --dev and --test are folders of RACE's .txt files, or jsonl files
(columns: see docs/how-to/data-formats.md), several with commas between them.
"""

from tfrecord_builders.common import example_builder
from tfrecord_builders.race.build import RaceOptions, build_race

if __name__ == "__main__":
    example_builder.run(RaceOptions, build_race)

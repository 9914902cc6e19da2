r"""Builds examples for tagging words: entities in CoNLL-2003's column files, or in your own texts.

    python -m tfrecord_builders.tagging --train=train.txt --dev=dev.txt --test=test.txt \
        --tokenizer=spiece.model --output_dir=records/conll2003

The forms of files are those of tagging_data.read_sentences: columns, or jsonl with tokens and tags or with
texts and entities. A sequence is [words SEP CLS]; the first piece of each word has the word's tag. A sentence
that is longer than a sequence is cut into windows. With --document, all sentences of a document are one text:
with a large --seq_len the model reads it in segments, with memory (task.model.segment_len).
"""

from collections.abc import Sequence

from tfrecord_builders.common.options import SPLITS
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from xlnet_tf import command_line, errors
from xlnet_tf.flags import define_flags, from_flags
from xlnet_tf.records import example_report


def main(argv: Sequence[str]) -> None:
    del argv
    print(example_report.summary(build_tagging(from_flags(TaggingOptions), progress=True)))


if __name__ == "__main__":
    define_flags(TaggingOptions)
    command_line.require_one_of(*SPLITS)
    errors.run(main)

r"""Builds examples for tagging words: entities in CoNLL-2003's column files, or in your own texts.

    python -m tfrecord_builders.tagging --train=train.txt --dev=dev.txt --test=test.txt \
        --tokenizer=spiece.model --output_dir=records/conll2003

The forms of files are those of tagging_data.read_sentences: columns, or jsonl with tokens and tags or with
texts and entities. A sequence is [words SEP CLS]; the first piece of each word has the word's tag. A sentence
that is longer than a sequence is cut into windows. With --document, all sentences of a document are one text:
with a large --seq_len the model reads it in segments, with memory (task.model.segment_len).
"""

from collections.abc import Sequence

from absl import flags

from tfrecord_builders.common import example_flags
from tfrecord_builders.tagging.build import SPLITS, TaggingOptions, build_tagging
from tfrecord_builders.tagging.schemes import SCHEMES
from xlnet_tf import command_line, errors
from xlnet_tf.records import example_report


def define_flags() -> None:
    """Defines one flag for each field of TaggingOptions."""
    default = example_flags.define(TaggingOptions)
    for split in SPLITS:
        flags.DEFINE_list(
            split,
            [],
            f"files of the {split} split: columns, or .jsonl with tokens or texts; plain or .gz"
            + (", tags may be missing" if split == "test" else ""),
        )
    flags.DEFINE_list("types", [], "types of entities. Default: those of the training data")
    flags.DEFINE_integer(
        "word_column", default["word_column"], "column of the words, from 0; -1 is the last one"
    )
    flags.DEFINE_integer("tag_column", default["tag_column"], "column of the tags")
    flags.DEFINE_enum("scheme", default["scheme"], SCHEMES, "how tags mark entities; stored as BIO")
    flags.DEFINE_bool(
        "repair",
        default["repair"],
        "repair and count tags that the scheme does not allow; else they are errors",
    )
    flags.DEFINE_integer("seq_len", default["seq_len"], "tokens of a sequence", lower_bound=8)
    flags.DEFINE_integer(
        "stride", None, "pieces between the starts of two windows. Default: half a sequence", lower_bound=1
    )
    flags.DEFINE_bool("document", default["document"], "make all sentences of a document one text")


def main(argv: Sequence[str]) -> None:
    del argv
    print(example_report.summary(build_tagging(example_flags.options(TaggingOptions), progress=True)))


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("train", "dev", "test")
    errors.run(main)

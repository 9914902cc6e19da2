r"""Builds examples for classification, regression and multi-label classification of texts and pairs of texts.

    python -m tfrecord_builders.classification --train=train.csv --dev=dev.csv --text_column=text \
        --label_column=label --tokenizer=spiece.model --output_dir=records/mine
    python -m tfrecord_builders.classification --preset=sst-2 --data_dir=glue/SST-2 --tokenizer=spiece.model \
        --output_dir=records/sst-2

Each split becomes a folder of --output_dir. All rows are read and checked before any example is written.
"""

from collections.abc import Sequence

from absl import flags

from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import TRUNCATIONS, ClassificationOptions
from tfrecord_builders.classification.presets import METRICS, PRESETS
from tfrecord_builders.common import example_flags, tables
from xlnet_tf import command_line, errors
from xlnet_tf.records import example_report


def define_flags() -> None:
    """Defines one flag for each field of ClassificationOptions."""
    default = example_flags.define(ClassificationOptions)
    flags.DEFINE_enum("preset", None, list(PRESETS), "a well-known set of texts; needs --data_dir")
    flags.DEFINE_string("data_dir", None, "folder of the preset's files, under their official names")
    for split in ("train", "dev", "test"):
        flags.DEFINE_string(
            split, None, f"{split} data: a csv, tsv or jsonl file, plain or .gz, or folders of .txt files"
        )
    flags.DEFINE_list("text_column", None, "column of the text; several are joined. Default: text")
    flags.DEFINE_list("text_pair_column", None, "column of the second text, for pairs")
    flags.DEFINE_list(
        "label_column",
        None,
        "column of the label; with --kind=multi_label also several columns of 0 and 1. A test split may lack "
        "it, or have nothing in it. Default: label",
    )
    flags.DEFINE_string("id_column", None, "column that names the rows in predictions. Default: their number")
    flags.DEFINE_enum("kind", None, list(METRICS), "what a label is. Default: classification")
    flags.DEFINE_list("labels", None, "all labels, in the model's order. Default: those of --train, sorted")
    flags.DEFINE_string("label_separator", None, "between several labels in one column. Default: a comma")
    flags.DEFINE_list("metrics", None, "what to evaluate; the first decides which checkpoint is best")
    flags.DEFINE_enum("format", None, list(tables.KINDS), "format of the files. Default: by their names")
    flags.DEFINE_bool(
        "header", None, "csv, tsv: the first line names the columns; without, they are 0, 1, ..."
    )
    flags.DEFINE_bool("quoting", None, "csv, tsv: double quotes enclose fields. Default: in csv, not in tsv")
    flags.DEFINE_string("encoding", None, "encoding of the files. Default: utf-8")
    flags.DEFINE_integer("seq_len", default["seq_len"], "tokens of an example", lower_bound=5)
    flags.DEFINE_enum(
        "truncation", default["truncation"], list(TRUNCATIONS), "where a text that is too long is cut"
    )
    flags.DEFINE_float(
        "dev_fraction", None, "part of --train to hold out as dev split. Default: the preset's, or 0"
    )
    flags.DEFINE_integer("train_limit", 0, "training rows to take, at random; 0: all", lower_bound=0)
    flags.DEFINE_integer("eval_limit", 0, "rows to take of each other split; 0: all", lower_bound=0)
    flags.DEFINE_bool(
        "skip_ragged",
        default["skip_ragged"],
        "leave out, and count, rows with too few or many fields",
    )
    flags.DEFINE_integer("seed", default["seed"], "random seed for the rows held out or taken", lower_bound=0)


def main(argv: Sequence[str]) -> None:
    del argv
    options = example_flags.options(ClassificationOptions)
    built = build_classification(options, progress=True)
    print(example_report.summary(built))
    if options.preset:
        for split, source in PRESETS[options.preset].sources.items():
            if split not in built:
                print(f"{split}: {source.file} is not there, left out")


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("train", "dev", "test", "preset")
    errors.run(main)

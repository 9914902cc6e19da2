r"""Builds examples of ranking: passages, answers or replies for a query, K candidates in one record.

WikiQA:
    python -m tfrecord_builders.ranking --format=wikiqa --train=WikiQA-train.tsv --dev=WikiQA-dev.tsv \
        --tokenizer=spiece.model --output_dir=records/wikiqa
MS MARCO and TREC ({split} stands for train, dev or test):
    python -m tfrecord_builders.ranking --format=trec --train=queries.train.tsv --dev=queries.dev.tsv \
        --collection=collection.tsv --run=top1000.{split}.tsv --qrels=qrels.{split}.tsv --depth=100 \
        --tokenizer=spiece.model --output_dir=records/marco
Your own csv, tsv or jsonl, for instance the replies that agents chose in customer support:
    python -m tfrecord_builders.ranking --train=tickets.csv --query_column=message --passage_column=reply \
        --relevance_column=chosen --tokenizer=spiece.model --output_dir=records/support

A sequence is [query SEP passage SEP CLS]. For training, each relevant passage makes a record with K - 1 drawn
from those less relevant; dev and test have all candidates of a query, in as many records as it takes.
"""

from collections.abc import Sequence

from absl import flags

from tfrecord_builders.common import example_flags
from tfrecord_builders.ranking.build import FORMATS, SPLITS, RankingOptions, build_ranking
from xlnet_tf import command_line, errors
from xlnet_tf.records import example_report


def define_flags() -> None:
    """Defines one flag for each field of RankingOptions."""
    default = example_flags.define(RankingOptions)
    flags.DEFINE_enum(
        "format",
        default["format"],
        FORMATS,
        "table (csv, tsv or jsonl: a query, a passage and its relevance a line), wikiqa (.tsv, or .txt with "
        ".ref beside it) or trec",
    )
    for split in SPLITS:
        flags.DEFINE_string(
            split, "", f"file of the {split} split; format=trec: of its queries (id, tab, text)"
        )
    for name in ("query", "passage", "relevance"):
        flags.DEFINE_string(f"{name}_column", default[f"{name}_column"], f"column of the {name}")
    for name in ("query_id", "passage_id"):
        flags.DEFINE_string(f"{name}_column", default[f"{name}_column"], f"column of the {name}, if any")
    flags.DEFINE_string("collection", "", "trec: file of all passages (id, tab, text)")
    flags.DEFINE_string(
        "run", "", "trec: candidates, best first: a TREC run, or query id, passage id and more with tabs"
    )
    flags.DEFINE_string("qrels", "", "trec: judgements (query id, 0, passage id, relevance)")
    flags.DEFINE_integer(
        "depth", default["depth"], "trec: candidates of a query to take from the run; 0: all", lower_bound=0
    )
    flags.DEFINE_integer("candidates", default["candidates"], "candidates K of a record", lower_bound=2)
    flags.DEFINE_integer(
        "relevant_from",
        default["relevant_from"],
        "smallest relevance that counts as relevant (TREC Deep Learning's passages: 2)",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "num_passes",
        default["num_passes"],
        "training records for each relevant passage, each with others drawn beside it",
        lower_bound=1,
    )
    flags.DEFINE_integer("seq_len", default["seq_len"], "tokens of a sequence", lower_bound=5)
    flags.DEFINE_integer("max_query_len", default["max_query_len"], "most tokens of a query", lower_bound=1)
    flags.DEFINE_integer(
        "seed", default["seed"], "random seed for the candidates drawn for training", lower_bound=0
    )


def main(argv: Sequence[str]) -> None:
    del argv
    print(example_report.summary(build_ranking(example_flags.options(RankingOptions), progress=True)))


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("train", "dev", "test")
    errors.run(main)

r"""Builds examples of ranking: passages, answers or replies for a query, K candidates in one record.

WikiQA:
    python -m tfrecord_builders.ranking --format=wikiqa --train=WikiQA-train.tsv --dev=WikiQA-dev.tsv \
        --tokenizer=spiece.model --output_dir=records/wikiqa

MS MARCO and TREC ({split} stands for train, dev or test):
    python -m tfrecord_builders.ranking --format=trec --train=queries.train.tsv --dev=queries.dev.tsv \
        --collection=collection.tsv --run=top1000.{split}.tsv --qrels=qrels.{split}.tsv --depth=100 \
        --tokenizer=spiece.model --output_dir=records/marco

BEIR's and MTEB's folders:
    python -m tfrecord_builders.ranking --format=beir --train=scifact --test=scifact --depth=50 \
        --tokenizer=spiece.model --output_dir=records/scifact

Your own csv, tsv or jsonl, for instance the replies that agents chose in customer support:
    python -m tfrecord_builders.ranking --train=tickets.csv --query_column=message --passage_column=reply \
        --relevance_column=chosen --tokenizer=spiece.model --output_dir=records/support

A sequence is [query SEP passage SEP CLS]. For training, each relevant passage makes a record with K - 1 drawn
from those less relevant; dev and test have all candidates of a query, in as many records as it takes.
"""

from tfrecord_builders.common import example_builder
from tfrecord_builders.ranking.build import RankingOptions, build_ranking

if __name__ == "__main__":
    example_builder.run(RankingOptions, build_ranking)

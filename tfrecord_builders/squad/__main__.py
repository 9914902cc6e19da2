r"""Builds examples of question answering: SQuAD 1.1 or 2.0, or your own data in their format.

    python -m tfrecord_builders.squad --train=train-v2.0.json --dev=dev-v2.0.json --tokenizer=spiece.model \
        --output_dir=records/squad

An example is a window of a passage with the question, [passage SEP question SEP CLS], padded on the right.
A passage that is too long gives several windows that overlap. Next to the examples of a split lie
passages.jsonl, the passages with the offsets of each token, from which answers are read, and skipped.jsonl,
every question that is not among the examples, with the reason.
"""

from tfrecord_builders.common import example_builder
from tfrecord_builders.squad.build import SquadOptions, build_squad

if __name__ == "__main__":
    example_builder.run(SquadOptions, build_squad)

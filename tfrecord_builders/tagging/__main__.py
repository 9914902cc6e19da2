r"""Builds examples of tagging words: entities in CoNLL-2003's column files, or in your own texts.

    python -m tfrecord_builders.tagging --train=train.txt --dev=dev.txt --test=test.txt \
        --tokenizer=spiece.model --output_dir=records/conll2003

Files are columns, or jsonl with tokens and tags or with texts and entities. A sequence is [words SEP CLS];
the first piece of each word has the word's tag. A sentence that is longer than a sequence is cut into
windows. With --document, all sentences of a document are one text: with a large --seq_len the model reads
it in segments, with memory (task.model.segment_len).
"""

from tfrecord_builders.common import example_builder
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging

if __name__ == "__main__":
    example_builder.run(TaggingOptions, build_tagging)

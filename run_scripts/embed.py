r"""Makes vectors of texts: with any model's encoder, pretrained, fine-tuned or exported.

    python -m run_scripts.embed --model_dir=runs/demo/model --text="A fine film ."
    python -m run_scripts.embed --model_dir=runs/demo/model --data='corpus/*.jsonl' --output_dir=vectors \
        --output_format=parquet

The vector of a text is the mean of its tokens' or, with --pooling=cls, that of CLS. Vectors of texts given by
--text are printed as JSON lines. A text has at most 32,768 tokens.

A corpus is embedded into shards, by many processes or, with --runner=beam, on many machines. An interrupted
job resumes; rows that cannot be embedded are listed in failed-embeddings-*.jsonl with the reason.
"""

import dataclasses
import sys
from collections.abc import Sequence

from run_scripts.common import computing
from run_scripts.common.answers import json_line
from run_scripts.common.sharded import models
from run_scripts.common.sharded.options import ShardOptions, TextOptions
from tfrecord_builders.common.runners import threads_of_machine
from xlnet_tf import errors, hub
from xlnet_tf.cli import command_line
from xlnet_tf.flags import define_flags, from_flags, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedOptions(TextOptions):
    """Which model embeds which texts."""

    model_dir: str = option(
        "Folder of a model: a run's, of save_pretrained, of export (of a pretrained model), the original's, "
        "Hugging Face's, or hf://OWNER/NAME.",
        group="model",
    )
    text: Sequence[str] | None = option("Text to embed.", None, repeated=True, group="data")


def main(_: Sequence[str]) -> None:
    options, shards = from_flags(EmbedOptions), from_flags(ShardOptions)
    options.check(shards)
    hub.require(options.model_dir)
    from run_scripts.common.sharded import formats, job
    from xlnet_tf.serving.sources import open_embedder

    embedding = from_flags(models.Embedding, path=options.model_dir)
    if not options.text:
        source = open_embedder(options.model_dir, embedding.checkpoint, embedding.layer, embedding.dtype)
        job.run_texts("embeddings", embedding, options, source.file, shards.resolved())
        return
    computing.run_eagerly(options.model_dir)
    answers = embedding.load(threads_of_machine()).answer([{"text": text} for text in options.text])
    for text, answer in zip(options.text, answers, strict=True):
        sys.stdout.write(json_line({"text": text, **formats.plain_answer(answer)}))


if __name__ == "__main__":
    define_flags(EmbedOptions, models.Embedding, ShardOptions)
    command_line.require_one_of("text", "data", "tfds_name")
    errors.run(main)

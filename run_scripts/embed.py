r"""Makes vectors of texts: with any model's encoder, pretrained, fine-tuned or exported.

    python -m run_scripts.embed --model_dir=runs/demo/model --text="A fine film ."
    python -m run_scripts.embed --model_dir=runs/demo/model --data='corpus/*.jsonl' --output_dir=vectors \
        --output_format=parquet

The vector of a text is the mean of its tokens' or, with --pooling=cls, that of CLS. Vectors of texts given by
--text are printed as JSON lines. A text has at most 32,768 tokens.

A corpus is embedded into shards, by many processes or, with --runner=beam, on many machines. An interrupted
job resumes; rows that cannot be embedded are listed in failed-embeddings-*.jsonl with the reason.
"""

import sys
from collections.abc import Sequence

from absl import flags

from run_scripts.common.answers import json_line
from run_scripts.common.sharded import models
from run_scripts.common.sharded import options as sharded
from tfrecord_builders.common.runners import threads_of_machine
from xlnet_tf import errors, hub
from xlnet_tf.cli import command_line
from xlnet_tf.flags import define_flags, from_flags


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    sharded.check_text_flags(values)
    hub.require(values.model_dir)
    from run_scripts.common.sharded import formats, job
    from xlnet_tf.serving.models import find_embedder

    embedder = from_flags(models.Embedding, path=values.model_dir)
    if not values.text:
        source = find_embedder(values.model_dir, values.checkpoint, values.layer, values.dtype)
        options = from_flags(sharded.ShardOptions).resolved()
        job.run_texts("embeddings", embedder, values, source.file, options)
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)  # of few texts, a graph takes longer to trace
    answerer = embedder.load(threads_of_machine())
    for text, answer in zip(values.text, answerer.answer([{"text": text} for text in values.text])):
        sys.stdout.write(json_line({"text": text, **formats.plain_answer(answer)}))


if __name__ == "__main__":
    flags.DEFINE_string(
        "model_dir",
        None,
        "Folder of a model: a run's, of save_pretrained, of export (of a pretrained model), the original's, "
        "Hugging Face's, or hf://OWNER/NAME.",
        required=True,
    )
    flags.DEFINE_multi_string("text", None, "Text to embed.")
    define_flags(models.Embedding)
    sharded.define_text_flags()
    command_line.require_one_of("text", "data", "tfds_name")
    errors.run(main)

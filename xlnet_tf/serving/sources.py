"""Opens models that answer texts: a fine-tuned run, weights by path or name, or an exported model."""

from collections.abc import Collection
from typing import Any

from xlnet_tf.serving.answers.source import Source


def open_served(
    path: str,
    *,
    checkpoint: str = "",
    head: str | None = None,
    head_name: str | None = None,
    inputs: Collection[str] | None = None,
    **options: Any,
) -> Source:
    """Finds how trained weights are served, to export them or to answer texts in this process.

    Args:
        path: a fine-tuned run or its best weights, or weights as open_checkpoint takes them; to answer in
            this process, also an exported model.
        checkpoint: of a run, as Run.checkpoint takes it: "best", "last", "ckpt-100"; "" is the best, if kept.
        head: LANGUAGE_MODEL or a task's name, to serve plain weights (also a run's) as; None: the task that
            they were trained for.
        head_name: which head for classification or regression, if there are several.
        inputs: to answer in this process, names of the available inputs: two texts make a pair where the
            model does not say. Rows are then padded to little more than their own length.
        **options: of the ExportableModel: seq_len, buckets, ...

    Raises:
        UserError: it is not for texts, its task is unknown, weights, tokenizer, architecture and head do not
            fit together, a file is damaged, or an option is wrong.
        FileNotFoundError: there is nothing at the path.
    """
    from xlnet_tf.serving import tensorflow_sources  # here: what OpenVINO answers needs no TensorFlow

    return tensorflow_sources.open_served(
        path, checkpoint=checkpoint, head=head, head_name=head_name, inputs=inputs, **options
    )


def weights_file(path: str) -> str:
    """Returns a file that changes with the weights at a path."""
    from xlnet_tf.serving import tensorflow_sources

    return tensorflow_sources.weights_file(path)

"""Opens models that answer or embed texts: fine-tuned runs, weights by path or name, exported models."""

import os
from collections.abc import Collection
from typing import Any

from xlnet_tf import hub, task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.generation.arrays.embedding import embedder
from xlnet_tf.generation.settings import check_layer
from xlnet_tf.model_folders import OPENVINO_MODEL, exported_version
from xlnet_tf.serving.answers.answering import Answering
from xlnet_tf.serving.answers.options import FLOAT32, exact_buckets
from xlnet_tf.serving.answers.source import Embedder, Source, check_type_is_kept, language_model_error
from xlnet_tf.serving.openvino.folder import OpenVinoFolder, find_folder
from xlnet_tf.task_registry import LANGUAGE_MODEL


def from_pretrained(path: str | os.PathLike) -> Any:
    """Opens a model that answers, whatever computes it.

    Args:
        path: a model that `export --runtime=openvino` wrote, or weights as XLNetClassifier.from_pretrained
            and the like take them.

    Returns:
        For a model for OpenVINO an object with `answer`, see XLNetHead.answer, without importing TensorFlow.
        Else the class of the task, such as XLNetClassifier. For pretrained weights of either kind an
        XLNetLanguageModel.

    Example:
        >>> xlnet_tf.from_pretrained("served/reviews").answer("A fine film.")
        {'label': 'positive', 'score': 0.98, 'probabilities': {'negative': 0.02, 'positive': 0.98}}
    """
    path = os.fspath(path)
    if version := find_folder(path):
        task = version.task
        if task != LANGUAGE_MODEL:
            return _answering(version)
    else:
        if exported_version(hub.locate(path).folder):
            raise UserError(
                f"{path} is a SavedModel, which predict and serve can ask: give the weights that it was "
                "exported from, or a model that export --runtime=openvino wrote"
            )
        from xlnet_tf.serving import tensorflow_sources  # here: what OpenVINO answers needs no TensorFlow

        task = tensorflow_sources.task_of_weights(path)
    if task == LANGUAGE_MODEL:
        from xlnet_tf.generation.language_model import XLNetLanguageModel

        return XLNetLanguageModel.from_pretrained(path)
    return task_registry.find(task).load("model").from_pretrained(path)


def open_served(
    path: str,
    *,
    checkpoint: str = "",
    head: str | None = None,
    head_name: str | None = None,
    inputs: Collection[str] | None = None,
    threads: int = 0,
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
        threads: that OpenVINO computes with; 0: one for each core. TensorFlow's are the process'.
        **options: of the ExportableModel: seq_len, buckets, ...

    Raises:
        UserError: it is not for texts, its task is unknown, weights, tokenizer, architecture and head do not
            fit together, a file is damaged, or an option is wrong.
        FileNotFoundError: there is nothing at the path.
    """
    if inputs is not None and (version := find_folder(path)):
        return _open_openvino(path, version, checkpoint, threads)
    from xlnet_tf.serving import tensorflow_sources  # here: what OpenVINO answers needs no TensorFlow

    return tensorflow_sources.open_served(
        path, checkpoint=checkpoint, head=head, head_name=head_name, inputs=inputs, **options
    )


def weights_file(path: str) -> str:
    """Returns a file that changes with the weights at a path."""
    if version := find_folder(path):
        return f"{version.path}/{OPENVINO_MODEL}"
    from xlnet_tf.serving import tensorflow_sources

    return tensorflow_sources.weights_file(path)


def _open_openvino(path: str, version: OpenVinoFolder, checkpoint: str, threads: int) -> Source:
    if checkpoint:
        raise UserError("--checkpoint is for fine-tuned runs")
    if version.task == LANGUAGE_MODEL:
        raise language_model_error(path)
    ranks = task_registry.find(version.task).load("answering").ranks_with(version.options)

    def load(weights_kind: str = FLOAT32) -> Answering:
        check_type_is_kept(path, weights_kind)
        return _answering(version, threads)

    return Source(version.path, f"{version.path}/{OPENVINO_MODEL}", ranks, load)


def _answering(version: OpenVinoFolder, threads: int = 0) -> Answering:
    """Loads what answers rows in this process, padded to little more than their own length."""
    buckets = exact_buckets(version.seq_len, version.segment_len)
    return version.answering(buckets=buckets, threads=threads)


def open_embedder(
    path: str, checkpoint: str = "", layer: int = -1, weights: str = FLOAT32, threads: int = 0
) -> Source:
    """Finds a model that embeds texts, of any weights or exported; its `load` returns an Embedder.

    For checkpoint and threads see open_served, for layer embed_texts: a SavedModel has one, which is -1.
    """
    if version := find_folder(path):
        if checkpoint:
            raise UserError("--checkpoint is for fine-tuned runs")
        check_type_is_kept(path, weights)
        return _openvino_embedder(version, layer, threads)
    from xlnet_tf.serving import tensorflow_sources  # here: what OpenVINO answers needs no TensorFlow

    return tensorflow_sources.open_embedder(path, checkpoint, layer, weights)


def _openvino_embedder(version: OpenVinoFolder, layer: int, threads: int) -> Source:
    engine = version.language_model(threads)
    layer = version.options.get("layer", -1) if layer == -1 else layer
    check_layer(layer, engine.n_layer)

    def load(weights: str = FLOAT32) -> Embedder:
        del weights
        return embedder(engine, version.load_tokenizer(), layer)

    return Source(version.path, f"{version.path}/{OPENVINO_MODEL}", {"text": 1}, load)

"""Opens a text embedder: any weights, fine-tuned or not, or an exported language model."""

from xlnet_tf.errors import UserError
from xlnet_tf.generation.arrays.embedding import embedder
from xlnet_tf.generation.settings import check_layer
from xlnet_tf.model_folders import OPENVINO_MODEL
from xlnet_tf.serving.answers.options import FLOAT32
from xlnet_tf.serving.answers.source import Embedder, Source, check_type_is_kept
from xlnet_tf.serving.openvino.folder import OpenVinoFolder, find_folder


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
        return _open_openvino(version, layer, threads)
    from xlnet_tf.serving import tensorflow_sources  # here: what OpenVINO answers needs no TensorFlow

    return tensorflow_sources.open_embedder(path, checkpoint, layer, weights)


def _open_openvino(version: OpenVinoFolder, layer: int, threads: int) -> Source:
    engine = version.language_model(threads)
    layer = version.options.get("layer", -1) if layer == -1 else layer
    check_layer(layer, engine.n_layer)

    def load(weights: str = FLOAT32) -> Embedder:
        del weights
        return embedder(engine, version.load_tokenizer(), layer)

    return Source(version.path, f"{version.path}/{OPENVINO_MODEL}", {"text": 1}, load)

"""Opens a text embedder: any weights, fine-tuned or not, or an exported language model."""

from xlnet_tf.serving.answers.options import FLOAT32
from xlnet_tf.serving.answers.source import Source


def open_embedder(
    path: str, checkpoint: str = "", layer: int = -1, weights: str = FLOAT32, threads: int = 0
) -> Source:
    """Finds a model that embeds texts; its `load` returns an Embedder.

    Args:
        path: any weights, or an exported language model.
        checkpoint: of a fine-tuned run; see open_served.
        layer: see generation.embedding.embed_texts; an exported model has a fixed layer.
        weights: the kind that will be loaded: float32 or bfloat16; of an exported model, float32.
        threads: see open_served.
    """
    from xlnet_tf.serving import tensorflow_sources  # here: what OpenVINO answers needs no TensorFlow

    return tensorflow_sources.open_embedder(path, checkpoint, layer, weights)

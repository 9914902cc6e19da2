"""Opens a text embedder: any weights, fine-tuned or not, or an exported language model."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from xlnet_tf import hub
from xlnet_tf.checkpoints.model_card import is_run
from xlnet_tf.errors import UserError
from xlnet_tf.generation.arrays.embedding import embed_texts
from xlnet_tf.generation.graphs import EncoderGraphs
from xlnet_tf.generation.results import TextVectors
from xlnet_tf.generation.settings import check_layer
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.serving.graph.signatures import plain
from xlnet_tf.serving.graph.weights import FLOAT32, policy
from xlnet_tf.serving.sources import Source, check_type_is_kept, exported_version, weights_file
from xlnet_tf.tasks.pretraining.serving import EMBED

Embedder = Callable[[Sequence[str], bool], TextVectors]  # of texts, and whether each token is to have one


def open_embedder(path: str, checkpoint: str = "", layer: int = -1, weights: str = FLOAT32) -> Source:
    """Finds a model that embeds texts; its `load` returns an Embedder.

    Args:
        path: any weights, or an exported language model.
        checkpoint: of a fine-tuned run; see open_served.
        layer: see generation.arrays.embedding.embed_texts; an exported model has a fixed layer.
        weights: the kind that will be loaded: float32 or bfloat16; of an exported model, float32.
    """
    folder = hub.locate(path.rstrip("/")).folder
    if not is_run(folder) and checkpoint:
        raise UserError("--checkpoint is for fine-tuned runs")
    if version := exported_version(folder):
        if layer != -1:
            raise UserError(f"{path} is exported: its layer was chosen then, expected no --layer")
        check_type_is_kept(path, weights)
        file = f"{version}/saved_model.pb"
        return Source(version, file, {"text": 1}, lambda weights=FLOAT32: _exported_embedder(version))
    if is_run(folder):
        from xlnet_tf.tasks.prediction import Run  # here: Model Garden and scipy

        path = Run.open(folder, "").checkpoint(checkpoint)
    source = Pretrained(path)
    check_layer(layer, source.config.n_layer)

    def load(weights: str = FLOAT32) -> Embedder:
        with policy(weights):
            encoder, tokenizer = XLNetEncoder.from_pretrained(source), source.load_tokenizer()
        engine = EncoderGraphs(encoder)
        return lambda texts, tokens: embed_texts(
            engine, tokenizer, texts, tokens=tokens, layer=layer, batch_size=max(1, len(texts))
        )

    return Source(path, weights_file(path), {"text": 1}, load)


def _exported_embedder(version: str) -> Embedder:
    loaded = tf.saved_model.load(version)
    if EMBED not in loaded.signatures:
        raise UserError(
            f"{version} has no signature {EMBED}: expected an exported language model. Give the folder of "
            "the weights that it was exported from"
        )

    def embed(texts: Sequence[str], tokens: bool) -> TextVectors:
        answers = {
            name: value.numpy() for name, value in loaded.signatures[EMBED](text=tf.constant(texts)).items()
        }
        if error := next(filter(None, answers["error"]), b"").decode():
            raise UserError(error)
        if answers["truncated"].any():
            raise UserError("a text has more pieces than the model was exported for (--seq_len)")
        vectors = TextVectors(answers["mean"], answers["cls"])
        if not tokens:
            return vectors
        rows = [*zip(answers["tokens"], plain(answers["pieces"]), answers["num_tokens"])]
        return dataclasses.replace(
            vectors,
            tokens=[values[:count] for values, _, count in rows],
            pieces=[pieces[:count] for _, pieces, count in rows],
        )

    return embed

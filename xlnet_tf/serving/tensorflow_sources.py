"""Opens models that TensorFlow computes: a fine-tuned run, weights by path or name, or a SavedModel.

Begin with `sources.py`, which everybody else calls.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from xlnet_tf import hub, task_registry
from xlnet_tf.checkpoints import Checkpoint, building_from, load_into, open_checkpoint
from xlnet_tf.checkpoints.model_card import ModelCard, is_run, task_of
from xlnet_tf.errors import UserError, reason
from xlnet_tf.generation.arrays.embedding import embedder
from xlnet_tf.generation.graphs import EncoderGraphs
from xlnet_tf.generation.results import TextVectors
from xlnet_tf.generation.settings import check_layer
from xlnet_tf.model_folders import exported_version
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.answers.options import FLOAT32, INT8, exact_buckets
from xlnet_tf.serving.answers.signatures import SERVING_DEFAULT, plain
from xlnet_tf.serving.answers.source import Embedder, Source, check_type_is_kept, language_model_error
from xlnet_tf.serving.answers.text_answers import Served
from xlnet_tf.serving.graph.exported_model import EXAMPLES, ExportableModel
from xlnet_tf.serving.graph.graph_predictor import GraphPredictor
from xlnet_tf.serving.graph.inputs import serialized_example
from xlnet_tf.serving.graph.weights import policy
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.tasks.pretraining.serving import EMBED, LanguageModelModule


def open_served(
    path: str,
    *,
    checkpoint: str = "",
    head: str | None = None,
    head_name: str | None = None,
    inputs: Collection[str] | None = None,
    **options: Any,
) -> Source:
    """See sources.open_served."""
    located = hub.locate(path.rstrip("/"))
    if head is None and is_run(located.folder):
        return _open_run(located, checkpoint, inputs is not None, options)
    if checkpoint:
        raise UserError("--checkpoint is for fine-tuned runs")
    if inputs is not None and (version := exported_version(located.folder)):
        return _open_export(path, version)
    return _open_weights(path, head, head_name, inputs, options)


def _open_run(
    located: hub.Located, checkpoint: str, answers_here: bool, options: Mapping[str, Any]
) -> Source:
    from xlnet_tf.tasks.prediction import Run  # here: Model Garden and scipy, which weights alone do not need

    run = Run.open(located.folder, "")
    weights = run.checkpoint(checkpoint)
    kind = task_registry.entry_for_set(run.task.example_set).load("serving")
    options = {**kind.options_of_run(run.task), **options}
    if answers_here:
        segment_len = getattr(run.task.task_config.model, "segment_len", 0)
        options["buckets"] = exact_buckets(options["seq_len"], segment_len)

    def load(weights_kind: str = FLOAT32) -> ExportableModel:
        source = open_checkpoint(weights)
        with policy(weights_kind), building_from(source) as loaded:
            model = run.task.build_model()
        load_into(model, source, loaded=loaded)
        tokenizer = run.task.example_set.load_tokenizer()
        served = kind(model, tokenizer, int8=weights_kind == INT8, **options)
        origin = source.source if located.source == located.folder else located.source
        served.card = source.card.with_origin("exported_from", origin)
        if temperature := options.get("temperature"):
            serving = {**served.card.serving, "temperature": list(temperature)}
            served.card = dataclasses.replace(served.card, serving=serving)
        return served

    dtype = run.params.runtime.mixed_precision_dtype
    return Source(weights, weights_file(weights), kind.ranks_with(options), load, options, dtype)


def _open_weights(
    path: str,
    head: str | None,
    head_name: str | None,
    inputs: Collection[str] | None,
    options: Mapping[str, Any],
) -> Source:
    source = Pretrained(path)
    head = _task_of(path, source.checkpoint) if head is None else task_registry.canonical(head)
    if head == LANGUAGE_MODEL and inputs is not None:
        raise language_model_error(path)
    if head != LANGUAGE_MODEL and head not in task_registry.tasks():
        known = ", ".join((LANGUAGE_MODEL, *task_registry.names()))
        raise UserError(f"the head is {head!r}; expected one of {known}")
    task = None if head == LANGUAGE_MODEL else task_registry.find(head)
    kind = task.load("serving") if task else LanguageModelModule
    segment_len = source.card.settings.get("segment_len", 0) if task else 0
    options = kind.complete_options({**source.card.serving, **options}, segment_len)
    if inputs is not None:
        options["buckets"] = exact_buckets(options["seq_len"], segment_len)
        if "pair" in kind.OF_EXAMPLES:
            options.setdefault("pair", {"text_a", "text_b"} <= set(inputs))

    def load(weights_kind: str = FLOAT32) -> ExportableModel:
        # see XLNetLanguageModel.from_pretrained
        model_class, model_options = XLNetPretrainer, {"uniform_when_blind": False}
        if task:
            if source.find_head(task.head_kind, head_name).new:
                name = f"{task.name} called {head_name}" if head_name else task.name
                raise UserError(
                    f"{path} has no head for {name}; expected weights that were fine-tuned for it"
                )
            model_class = task.load("model")
            model_options = {**task.model_options, **({"head_name": head_name} if head_name else {})}
        tokenizer = source.load_tokenizer()
        with policy(weights_kind):
            model = model_class.from_pretrained(source, **model_options)
        served = kind(model, tokenizer, int8=weights_kind == INT8, **options)
        # Many weights of others do not say their task.
        origin = source.checkpoint.source
        served.card = source.card.with_origin("exported_from", origin, task=served.card.task)
        return served

    return Source(path, _weights_file(path, source.checkpoint), kind.ranks_with(options), load, options)


def _open_export(path: str, version: str) -> Source:
    served = ExportedModel(version)

    def load(weights_kind: str = FLOAT32) -> Served:
        check_type_is_kept(path, weights_kind)
        return served

    return Source(version, f"{version}/saved_model.pb", served.input_ranks(), load)


def weights_file(path: str) -> str:
    """Returns a file that changes with the weights at a path."""
    return _weights_file(path, open_checkpoint(path))


def _weights_file(path: str, checkpoint: Checkpoint) -> str:
    weights = path if path.endswith(".keras") else checkpoint.path
    return weights if tf.io.gfile.exists(weights) else f"{weights}.index"


def task_of_weights(path: str) -> str:
    """Returns the task that weights were trained for: a name of task_registry, or LANGUAGE_MODEL."""
    return _task_of(path, open_checkpoint(path))


def _task_of(path: str, checkpoint: Checkpoint) -> str:
    if task := checkpoint.card.task or task_of(checkpoint.arrays):
        return task
    raise UserError(
        f"{path} does not say what it was trained for: it has no head, or several. Fine-tune it, or give "
        "export --head"
    )


def options_of_run(folder: str) -> dict[str, Any]:
    """Returns the options that a run is served with, as JSON values; {} for other folders."""
    if not is_run(folder):
        return {}
    return {
        name: value._asdict() if hasattr(value, "_asdict") else value
        for name, value in open_served(folder).options.items()
        if value is not None
    }


class ExportedModel:
    """A version that `export` wrote, called in this process."""

    def __init__(self, folder: str):
        try:
            self._loaded = tf.saved_model.load(folder)
            signatures = self._loaded.signatures
            self._inputs = signatures[SERVING_DEFAULT].structured_input_signature[1]
            self._examples = signatures[EXAMPLES]
            task = task_registry.tasks().get(ModelCard.read(folder).task or "")
        except (KeyError, OSError, ValueError, tf.errors.OpError) as error:
            raise UserError(
                f"{folder} is not a model that export wrote for texts ({reason(error)}): give another folder"
            ) from error
        self._without_padding = (task.load("serving") if task else ExportableModel).without_padding

    def input_ranks(self) -> dict[str, int]:
        return {name: spec.shape.rank for name, spec in self._inputs.items()}

    def batch_predictor(self) -> GraphPredictor:
        """Returns the function that answers a batch of rows, sent as tf.Examples to allow ragged lists."""
        return GraphPredictor(
            self._examples,
            lambda rows: {"examples": tf.constant([*map(serialized_example, rows)])},
            self._without_padding,
        )


def open_embedder(path: str, checkpoint: str = "", layer: int = -1, weights: str = FLOAT32) -> Source:
    """See sources.open_embedder."""
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
        return embedder(EncoderGraphs(encoder), tokenizer, layer)

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

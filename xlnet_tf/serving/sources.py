"""Opens models that answer texts: a fine-tuned run, weights by path or name, or an exported model."""

import dataclasses
import types
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import tensorflow as tf

from xlnet_tf import hub, task_registry
from xlnet_tf.checkpoints import Checkpoint, building_from, load_into, open_checkpoint
from xlnet_tf.checkpoints.model_card import ModelCard, is_run, task_of
from xlnet_tf.errors import UserError, reason
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving import export
from xlnet_tf.serving.graph.exported_model import EXAMPLES, SERVING_DEFAULT, ExportableModel
from xlnet_tf.serving.graph.inputs import serialized_example
from xlnet_tf.serving.graph.options import exact_buckets
from xlnet_tf.serving.graph.text_answers import BatchPredictor, Served
from xlnet_tf.serving.graph.weights import FLOAT32, INT8, policy
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.tasks.pretraining.serving import LanguageModelModule


class _Load(Protocol):
    def __call__(self, weights: str = FLOAT32) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Source:
    """A model that answers texts, before anything slow of it is read.

    Attributes:
        path: where its weights are.
        file: a file that changes with them.
        ranks: its inputs, as in Served.input_ranks.
        load: from the kind of weights (see graph.weights) to the model: an ExportableModel, or a Served.
        options: the ExportableModel's options.
        dtype: of the run's training; "" if it is not a run.
    """

    path: str
    file: str
    ranks: Mapping[str, int]
    load: _Load
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dtype: str = ""


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
    return Source(weights, weights_file(weights), _ranks(kind, options), load, options, dtype)


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
        raise UserError(
            f"{path} is a pretrained language model: ask it with fill-mask, generate or score, or "
            "fine-tune it for what predict is to answer"
        )
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

    return Source(path, _weights_file(path, source.checkpoint), _ranks(kind, options), load, options)


def _open_export(path: str, version: str) -> Source:
    served = ExportedModel(version)

    def load(weights_kind: str = FLOAT32) -> Served:
        check_type_is_kept(path, weights_kind)
        return served

    return Source(version, f"{version}/saved_model.pb", served.input_ranks(), load)


def _ranks(kind: type[ExportableModel], options: Mapping[str, Any]) -> dict[str, int]:
    # An example needs no model, only what may be one of its options.
    rows = kind.example_rows(types.SimpleNamespace(**{"pair": False, **options}))
    return {name: 1 + isinstance(value, list) for name, value in rows.items()}


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


def exported_version(folder: str) -> str | None:
    """Returns the folder of an exported model's newest version, or a version itself; None if neither."""
    numbers = [folder, *(f"{folder}/{number}" for number in export.versions(folder))]
    return next((path for path in numbers[::-1] if tf.io.gfile.exists(f"{path}/saved_model.pb")), None)


def check_type_is_kept(path: str, weights: str) -> None:
    """Raises UserError if an exported model would be loaded in a type other than float32."""
    if weights != FLOAT32:
        raise UserError(f"{path} is exported and keeps the type that it has: leave out --dtype={weights}")


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

    def batch_predictor(self) -> BatchPredictor:
        """Returns the function that answers a batch of rows, sent as tf.Examples to allow ragged lists."""
        return BatchPredictor(
            self._examples,
            lambda rows: {"examples": tf.constant([*map(serialized_example, rows)])},
            self._without_padding,
        )

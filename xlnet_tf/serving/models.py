"""Finds out what trained weights are to be served as, and what it costs to store them smaller."""

import contextlib
import dataclasses
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from xlnet_tf import hub, task_registry
from xlnet_tf.checkpoints import building_from, load_into, open_checkpoint
from xlnet_tf.checkpoints.model_card import ModelCard, is_run, task_of
from xlnet_tf.errors import UserError, reason
from xlnet_tf.generation.embedding import TextVectors, check_layer, embed_texts
from xlnet_tf.generation.graphs import Graphs
from xlnet_tf.layers.base import policy_restored
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving import export
from xlnet_tf.serving.graph.int8 import Int8Weights
from xlnet_tf.serving.graph.module import (
    EXAMPLES,
    SERVING_DEFAULT,
    ServingModule,
    default_seq_len,
    exact_buckets,
    serialized_example,
)
from xlnet_tf.serving.graph.signatures import plain
from xlnet_tf.serving.graph.text_answers import RowFunction
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.tasks.classification.serving import AlertRule
from xlnet_tf.tasks.pretraining.serving import EMBED, LanguageModelModule

if TYPE_CHECKING:
    from xlnet_tf.tasks.prediction import Run

FLOAT32, BFLOAT16, INT8 = WEIGHTS = ("float32", "bfloat16", "int8")

_BATCH = 32
_SEQ_LEN = 512  # of the released models


def module_of_run(
    model_dir: str, *, checkpoint: str = "", weights: str = FLOAT32, **options
) -> ServingModule:
    """Returns what a fine-tuned run is served as.

    Args:
        model_dir: folder of the run, or of its best weights.
        checkpoint: as Run.checkpoint takes it: "best", "last", "ckpt-100"; "" is the best, if kept.
        weights: "float32"; "bfloat16": weights and activations, for processors that compute with it; "int8":
            weights only (see Int8Weights).
        **options: of the task's module: seq_len, buckets, ...

    Raises:
        UserError: there is no such checkpoint, or an option is wrong.
        FileNotFoundError: there is no such run.
    """
    located = hub.locate(model_dir)
    run = _open_run(located.folder, "")
    checkpoint = run.checkpoint(checkpoint)
    source = open_checkpoint(checkpoint)
    with policy(weights), building_from(source) as loaded:
        model = run.task.build_model()
    load_into(model, source, loaded=loaded)
    tokenizer = run.task.example_set.load_tokenizer()
    module_class = task_registry.entry_for_set(run.task.example_set).load("serving")
    options = {**module_class.options_of_run(run.task), **options}
    module = module_class(model, tokenizer, int8=weights == INT8, **options)
    origin = source.source if located.source == located.folder else located.source
    module.card = source.card.with_origin("exported_from", origin)
    if temperature := options.get("temperature"):
        serving = {**module.card.serving, "temperature": list(temperature)}
        module.card = dataclasses.replace(module.card, serving=serving)
    return module


@dataclasses.dataclass(frozen=True)
class Source:
    """A model that answers texts, before anything of it that takes time is read.

    Attributes:
        path: of its weights.
        file: that changes with them.
        ranks: its inputs, as Served.input_ranks has them.
        load: from the kind of weights to the model: a Served, or what find_embedder says.
        dtype: of the run's training; "" if it is not a run.
    """

    path: str
    file: str
    ranks: Mapping[str, int]
    load: Callable[[str], Any]
    dtype: str = ""


def find_source(path: str, checkpoint: str = "", inputs: Collection[str] = ()) -> Source:
    """Finds what answers texts: a fine-tuned run, weights by path or name, or an exported model.

    Args:
        path: of it.
        checkpoint: of a run; see module_of_run.
        inputs: names of the inputs that are there; two texts make a pair where the model does not say.

    Raises:
        UserError: it is not for texts, or a file of it is damaged.
        FileNotFoundError: there is nothing at the path.
    """
    folder = hub.locate(path.rstrip("/")).folder
    if not is_run(folder) and checkpoint:
        raise UserError("--checkpoint is for fine-tuned runs")
    if is_run(folder):
        run = _open_run(folder, "")
        weights = run.checkpoint(checkpoint)
        module_class = task_registry.entry_for_set(run.task.example_set).load("serving")
        options = module_class.options_of_run(run.task)
        segment_len = getattr(run.task.task_config.model, "segment_len", 0)
        given: dict[str, Any] = {"buckets": exact_buckets(options["seq_len"], segment_len)}
        dtype = run.params.runtime.mixed_precision_dtype
    elif version := _exported(folder):
        served = ExportedModel(version)

        def load_exported(kind: str) -> ExportedModel:
            _check_type_is_kept(path, kind)
            return served

        return Source(version, f"{version}/saved_model.pb", served.input_ranks(), load_exported)
    else:
        weights, task, dtype = path, task_of_weights(path), ""
        if task == LANGUAGE_MODEL:
            raise UserError(
                f"{path} is a pretrained language model: ask it with fill-mask, generate or score, or "
                "fine-tune it for what predict is to answer"
            )
        card, module_class = open_checkpoint(folder).card, task_registry.find(task).load("serving")
        segment_len = card.settings.get("segment_len", 0)
        options = module_class.complete_options(card.serving, segment_len)
        given = {"buckets": exact_buckets(options["seq_len"], segment_len)}
        if "pair" in module_class.OF_EXAMPLES and "pair" not in options:
            options["pair"] = given["pair"] = {"text_a", "text_b"} <= set(inputs)
    # An example needs no model, only what may be one of its options.
    rows = module_class.example_rows(types.SimpleNamespace(**{"pair": False, **options}))
    return Source(
        weights,
        weights_file(weights),
        {name: 1 + isinstance(value, list) for name, value in rows.items()},
        lambda kind: module_of(path, checkpoint=checkpoint, weights=kind, **given),
        dtype,
    )


def weights_file(path: str) -> str:
    """Returns a file that changes with the weights at a path."""
    weights = path if path.endswith(".keras") else open_checkpoint(path).path
    return weights if tf.io.gfile.exists(weights) else f"{weights}.index"


def _exported(folder: str) -> str | None:
    """Returns the newest version of an exported model, or a version itself; None if it is something else."""
    numbers = [folder, *(f"{folder}/{number}" for number in export.versions(folder))]
    return next((path for path in numbers[::-1] if tf.io.gfile.exists(f"{path}/saved_model.pb")), None)


class ExportedModel:
    """A version, in its folder, that `export` wrote, asked in this process.

    Raises:
        UserError: it is something else.
    """

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
        self._without_padding = (task.load("serving") if task else ServingModule).without_padding

    def input_ranks(self) -> dict[str, int]:
        """Returns the inputs by name: 1 for a text, 2 for a list of texts."""
        return {name: spec.shape.rank for name, spec in self._inputs.items()}

    def row_function(self) -> RowFunction:
        """Returns the function that answers a batch of rows; as tf.Examples, their lists may differ."""
        return RowFunction(
            self._examples,
            lambda rows: {"examples": tf.constant([*map(serialized_example, rows)])},
            self._without_padding,
        )


def _check_type_is_kept(path: str, weights: str) -> None:
    """Raises UserError if an exported model is asked for another type than the default."""
    if weights != FLOAT32:
        raise UserError(f"{path} is exported and keeps the type that it has: leave out --dtype={weights}")


def find_embedder(path: str, checkpoint: str = "", layer: int = -1, weights: str = FLOAT32) -> Source:
    """Finds what makes vectors of texts; what it loads takes texts, and whether each token is to have one.

    Args:
        path: of any weights, fine-tuned or not, or of an exported language model.
        checkpoint: of a fine-tuned run; see module_of_run.
        layer: see generation.embedding.embed_texts; of an exported model, the one that was exported.
        weights: the kind that will be asked for: float32 or bfloat16; of an exported model, float32.

    Raises:
        UserError: the model has no tokenizer or no such layer, or has been exported for something else.
        FileNotFoundError: there is nothing at the path.
    """
    folder = hub.locate(path.rstrip("/")).folder
    if not is_run(folder) and checkpoint:
        raise UserError("--checkpoint is for fine-tuned runs")
    if version := _exported(folder):
        if layer != -1:
            raise UserError(f"{path} is exported: its layer was chosen then, expected no --layer")
        _check_type_is_kept(path, weights)
        return Source(
            version, f"{version}/saved_model.pb", {"text": 1}, lambda _: _exported_embedder(version)
        )
    found = _open_run(folder, "").checkpoint(checkpoint) if is_run(folder) else path
    source = Pretrained(found)
    check_layer(layer, source.config.n_layer)

    def load(kind: str) -> Callable[[Sequence[str], bool], TextVectors]:
        with policy(kind):
            encoder, tokenizer = XLNetEncoder.from_pretrained(source), source.load_tokenizer()
        run = Graphs(encoder)
        return lambda texts, tokens: embed_texts(
            encoder, tokenizer, texts, tokens=tokens, layer=layer, batch_size=max(1, len(texts)), run=run
        )

    return Source(found, weights_file(found), {"text": 1}, load)


def _exported_embedder(version: str) -> Callable[[Sequence[str], bool], TextVectors]:
    loaded = tf.saved_model.load(version)
    if EMBED not in loaded.signatures:
        raise UserError(
            f"{version} has no signature {EMBED}: expected an exported language model. Give the folder of "
            "the weights that it was exported from"
        )

    def embed(texts: Sequence[str], tokens: bool) -> TextVectors:
        found = {
            name: value.numpy() for name, value in loaded.signatures[EMBED](text=tf.constant(texts)).items()
        }
        if error := next(filter(None, found["error"]), b"").decode():
            raise UserError(error)
        if found["truncated"].any():
            raise UserError("a text has more pieces than the model was exported for (--seq_len)")
        vectors = TextVectors(found["mean"], found["cls"])
        if not tokens:
            return vectors
        of_rows = [*zip(found["tokens"], plain(found["pieces"]), found["num_tokens"])]
        return dataclasses.replace(
            vectors,
            tokens=[values[:count] for values, _, count in of_rows],
            pieces=[pieces[:count] for _, pieces, count in of_rows],
        )

    return embed


def module_of(
    path: str, *, checkpoint: str = "", head: str | None = None, weights: str = FLOAT32, **options
) -> ServingModule:
    """Returns what any trained weights are served as: a run's, or those of a folder or name.

    Args:
        path: of a fine-tuned run, or of weights as open_checkpoint takes them.
        checkpoint: of a run; see module_of_run.
        head: of other weights; None: what they were trained for.
        weights, **options: as in module_of_run.

    Raises:
        UserError: nothing says what the weights were trained for; see module_of_run and module_of_checkpoint.
        FileNotFoundError: there is nothing at the path.
    """
    located = hub.locate(path.rstrip("/"))
    if is_run(located.folder):
        return module_of_run(path, checkpoint=checkpoint, weights=weights, **options)
    if head is None:
        head = task_of_weights(path)
    return module_of_checkpoint(path, head=head, weights=weights, **options)


def task_of_weights(path: str) -> str:
    """Returns what weights were trained for: a name of task_registry, or LANGUAGE_MODEL.

    Raises:
        UserError: nothing says it.
        FileNotFoundError: there is nothing at the path.
    """
    source = open_checkpoint(path)
    if task := source.card.task or task_of(source.arrays):
        return task
    raise UserError(
        f"{path} does not say what it was trained for: it has no head, or several. Fine-tune it, or give "
        "export --head"
    )


def options_of_run(folder: str) -> dict[str, Any]:
    """Returns the options that a run is served with, as JSON can hold them; none of other folders."""
    if not is_run(folder):
        return {}
    run = _open_run(folder, "")
    options = task_registry.entry_for_set(run.task.example_set).load("serving").options_of_run(run.task)
    return {
        name: value._asdict() if isinstance(value, AlertRule) else value
        for name, value in options.items()
        if value is not None
    }


def seq_len_of(path: str) -> int:
    """Returns the most tokens of a sequence that weights are served with, unless an option says otherwise."""
    if options := options_of_run(hub.locate(path.rstrip("/")).folder):
        return options["seq_len"]
    card = open_checkpoint(path).card
    return card.serving.get("seq_len", default_seq_len(card.settings.get("segment_len", 0)))


def module_of_checkpoint(
    path: str,
    *,
    head: str = LANGUAGE_MODEL,
    head_name: str | None = None,
    weights: str = FLOAT32,
    **options,
) -> ServingModule:
    """Returns what weights without a run are served as.

    Args:
        path: folder of a pretraining run, or of the original's or Hugging Face's files, with spiece.model.
        head: LANGUAGE_MODEL, or the name of one of task_registry.tasks().
        head_name: which head for classification or regression, if there are several.
        weights: as in module_of_run.
        **options: of the head's module: seq_len (512), buckets, ...

    Raises:
        UserError: weights, tokenizer, architecture and head are not all there or do not fit together.
        FileNotFoundError: there is nothing at the path.
    """
    source = Pretrained(path)
    if head == LANGUAGE_MODEL:
        model_class, module_class = XLNetPretrainer, LanguageModelModule
        model_options = {"uniform_when_blind": False}  # see XLNetLanguageModel.from_pretrained
    else:
        if task_registry.canonical(head) not in task_registry.tasks():
            known = ", ".join((LANGUAGE_MODEL, *task_registry.names()))
            raise UserError(f"the head is {head!r}; expected one of {known}")
        task = task_registry.find(head)
        model_class, module_class = task.load("model"), task.load("serving")
        model_options = {**task.model_options, **({"head_name": head_name} if head_name else {})}
        if source.find_head(task.head_kind, head_name).new:
            name = f"{task.name} called {head_name}" if head_name else task.name
            raise UserError(f"{path} has no head for {name}; expected weights that were fine-tuned for it")
    tokenizer = source.load_tokenizer()
    with policy(weights):
        model = model_class.from_pretrained(source, **model_options)
    segment_len = getattr(model, "segment_len", 0)
    options = module_class.complete_options({**source.card.serving, **options}, segment_len)
    module = module_class(model, tokenizer, int8=weights == INT8, **options)
    # Many weights of others do not say their task.
    card = source.card.with_origin("exported_from", source.checkpoint.source, task=module.card.task)
    module.card = card
    return module


@contextlib.contextmanager
def policy(weights: str) -> Iterator[None]:
    """Lets models be built for weights of a kind.

    Raises:
        UserError: there is no such kind.
    """
    if weights not in WEIGHTS:
        raise UserError(f"weights are {weights!r}; expected one of {', '.join(WEIGHTS)}")
    with policy_restored():
        tf_keras.mixed_precision.set_global_policy(BFLOAT16 if weights == BFLOAT16 else FLOAT32)
        yield


class Comparison(NamedTuple):
    """What smaller weights cost on a set of examples.

    Attributes:
        metric: the task's.
        full: its value with float32.
        small: with the smaller weights.
        points: lost, in hundredths of a metric that goes to 1.
    """

    metric: str
    full: float
    small: float
    points: float


def compare_weights(model_dir: str, data: str, weights: str, checkpoint: str = "") -> Comparison:
    """Scores a run on a set of examples with float32 and with smaller weights.

    Args:
        model_dir, weights, checkpoint: as in module_of_run.
        data: folder of examples with answers.

    Raises:
        UserError: the set has no answers or does not fit the run.
        FileNotFoundError: one of them is not there.
    """
    run = _run_to_score(model_dir, data)
    task, path = run.task, run.checkpoint(checkpoint)
    full, small = (
        task.score(task.validation_set, _predictions(run, path, kind))[task.BEST_METRIC]
        for kind in (FLOAT32, weights)
    )
    scale = 1 if task.IN_PERCENT else 100
    return Comparison(task.BEST_METRIC, full, small, scale * (full - small))


def fit_temperature(model_dir: str, data: str, weights: str = FLOAT32, checkpoint: str = "") -> list[float]:
    """Finds the temperature of a run's probabilities on a set of examples.

    Args:
        model_dir, weights, checkpoint: as in module_of_run.
        data: folder of examples with answers that the run was not trained on.

    Returns:
        One, or of several labels a text one for each.

    Raises:
        UserError: the task has no probabilities, the set has no answers or does not fit the run, or no
            temperature is best.
        FileNotFoundError: one of them is not there.
    """
    from xlnet_tf.tasks.metrics import calibration

    run = _run_to_score(model_dir, data)
    if run.task.validation_set.shards == run.task.example_set.shards:
        logging.warning(
            "%s has the examples that %s was trained on: it is surer of them than of new texts. Give its dev "
            "examples",
            data,
            model_dir,
        )
    predictions = _predictions(run, run.checkpoint(checkpoint), weights)
    found = run.task.probabilities(run.task.validation_set, predictions)
    if found is None or found.logits is None:
        task = task_registry.entry_for_set(run.task.validation_set).name
        raise UserError(f"{task} has no probabilities of labels to calibrate: leave out --calibrate")
    with_answer = found.targets.any(axis=1) | (not found.exclusive)
    logits, targets = found.logits[with_answer], found.targets[with_answer]
    temperatures = calibration.fit_temperature(logits, targets, found.exclusive, found.labels)
    return [float(value) for value in temperatures]


def _open_run(model_dir: str, data: str) -> "Run":
    from xlnet_tf.tasks.prediction import Run  # here: Model Garden and scipy, which weights alone do not need

    return Run.open(model_dir, data)


def _run_to_score(model_dir: str, data: str) -> "Run":
    run = _open_run(model_dir, data)
    if not run.task.has_answers(run.task.validation_set):
        raise UserError(f"{data} has no answers to score by: give a set of examples that has")
    return run


def _predictions(run: "Run", path: str, weights: str) -> dict[str, np.ndarray]:
    from xlnet_tf.tasks.prediction import Predictor

    with policy(weights):
        predictor = Predictor(run, tf.distribute.get_strategy(), _BATCH)
    load_into(predictor.model, path)
    with Int8Weights(predictor.model).in_place() if weights == INT8 else contextlib.nullcontext():
        return predictor.predict(path)

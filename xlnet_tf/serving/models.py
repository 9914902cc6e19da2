"""Finds out what trained weights are to be served as, and what it costs to store them smaller."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from xlnet_tf import task_registry
from xlnet_tf.checkpoints import load_into, open_checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.int8 import Int8Weights
from xlnet_tf.serving.language_model import LanguageModelModule
from xlnet_tf.serving.module import ServingModule
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.tasks.prediction import Predictor, Run
from xlnet_tf.text.windows import NUM_SPECIAL
from xlnet_tf.training.runtime import policy_restored

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
    run = Run.open(model_dir, "")
    checkpoint = run.checkpoint(checkpoint)
    with policy(weights):
        model = run.task.build_model()
    source = open_checkpoint(checkpoint)
    load_into(model, source)
    tokenizer = run.task.example_set.load_tokenizer()
    module_class = task_registry.of_examples(run.task.example_set).load("serving")
    options = {**module_class.options_of_run(run.task), **options}
    module = module_class(model, tokenizer, int8=weights == INT8, **options)
    module.card = source.card.with_origin("exported_from", source.source)
    return module


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
    options = {"seq_len": _SEQ_LEN, **options}
    half = max(1, (options["seq_len"] - NUM_SPECIAL) // 2)
    lengths = {name: min(length, half) for name, length in module_class.LENGTHS.items()}
    module = module_class(model, tokenizer, int8=weights == INT8, **lengths | options)
    module.card = source.card.with_origin("exported_from", source.checkpoint.source)
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
    run = Run.open(model_dir, data)
    if not run.task.has_answers(run.task.validation_set):
        raise UserError(f"{data} has no answers to score by: give a set of examples that has")
    path = run.checkpoint(checkpoint)
    full, small = (_score(run, path, kind) for kind in (FLOAT32, weights))
    scale = 1 if run.task.IN_PERCENT else 100
    return Comparison(run.task.BEST_METRIC, full, small, scale * (full - small))


def _score(run: Run, path: str, weights: str) -> float:
    with policy(weights):
        predictor = Predictor(run, tf.distribute.get_strategy(), _BATCH)
    load_into(predictor.model, path)
    with Int8Weights(predictor.model).in_place() if weights == INT8 else contextlib.nullcontext():
        predictions = predictor.predict(path)
    return run.task.score(run.task.validation_set, predictions)[run.task.BEST_METRIC]

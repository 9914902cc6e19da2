"""Fine-tuning on a table of your own in one call: task, columns, length and settings are found."""

import contextlib
import inspect
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from official.core import exp_factory, task_factory

from tfrecord_builders.automatic.build import Sources, build
from tfrecord_builders.common.tables import default_model_dir
from xlnet_tf import folders, hub, task_registry
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.models.head import XLNetHead
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks.seeds import finetune_seeds
from xlnet_tf.tasks.suggestions import Suggested, suggest
from xlnet_tf.training import runtime
from xlnet_tf.training.config import override


def suggested(train: str, init_checkpoint: str) -> Suggested:
    """Returns settings that suit a model and the examples in a folder."""
    width = open_checkpoint(init_checkpoint).config.d_model
    return suggest(width, ExampleSet.load(train).records)


_FLAG = re.compile(r"--(\w+)(?:=([\w.:/-]*\w))?")
_OTHERWISE = {"init_checkpoint": "model", "data": "--data of the command xlnet-tf finetune"}


@contextlib.contextmanager
def _naming_arguments() -> Iterator[None]:
    """Lets messages name arguments of `finetune` instead of the command's flags."""
    known = inspect.signature(finetune).parameters

    def argument(match: re.Match[str]) -> str:
        flag, value = match.groups()
        if flag.endswith("_column"):
            return f'columns={{"{flag.removesuffix("_column")}": "{value or "..."}"}}'
        name = _OTHERWISE.get(flag, flag)
        if flag in _OTHERWISE or flag in known:
            return f'{name}="{value}"' if value else name
        return match[0]

    try:
        yield
    except UserError as error:
        raise type(error)(_FLAG.sub(argument, str(error)).replace("} and columns={", ", ")) from error


def _path(table: str | os.PathLike) -> str:
    if not isinstance(table, str | os.PathLike):
        raise UserError(f"the table is a {type(table).__name__}, expected a file: save its rows as csv")
    return os.fspath(table)


@_naming_arguments()
def finetune(
    train: str | os.PathLike,
    model: str,
    *,
    dev: str | os.PathLike = "",
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    model_dir: str = "",
    seq_len: int = 0,
    settings: str | Mapping[str, Any] = "",
) -> XLNetHead:
    """Fine-tunes a model on a table and returns it with its best weights, ready to answer.

    The same call, again, continues an interrupted training or returns the finished model.

    Args:
        train: a table (csv, tsv, jsonl, json, Parquet, Arrow), a folder of texts by label, or the name of a
            data set, such as hf://datasets/OWNER/NAME/train.
        model: the weights to begin with: a folder or a name.
        dev: as train, to find the best weights; "": a part of train is held out, by its texts.
        task: classification, multi_label, regression, question_answering, multiple_choice, tagging or
            ranking; None: as the columns suggest.
        columns: those whose names do not tell, by what they are for: {"text": "body", "label": "verdict"}.
        model_dir: folder of the run and its examples; "": runs/NAME of the table.
        seq_len: tokens of a sequence; 0: as the texts need.
        settings: over the suggested ones, by path: {"task": {"epochs": 5.0, "seed": 1}}, or
            "task.epochs=5,trainer.optimizer_config.learning_rate=1e-4".

    Returns:
        An XLNetClassifier, XLNetRegressor, XLNetQuestionAnswering, XLNetMultipleChoice, XLNetTokenClassifier
        or XLNetRanker; `answer` answers texts.

    Raises:
        UserError: what a table leaves open, such as two possible tasks, and how to say it.

    Example:
        >>> model = xlnet_tf.finetune("reviews.csv", model="runs/demo/model")
        >>> model.answer("A fine film.")["label"]
        'positive'
    """
    hub.require(model)
    model_dir = model_dir or default_model_dir(_path(train))
    folders.claim(model_dir, folders.RUN, folders.RUNS, flag="model_dir")
    sources = Sources(train=_path(train), dev=_path(dev), task=task, columns=columns or {}, seq_len=seq_len)
    built = build(sources, model, f"{model_dir}/examples")
    entry = task_registry.entry_for_set(ExampleSet.load(built.folder / "train"))
    params = exp_factory.get_exp_config(entry.experiment)
    found = suggested(str(built.folder / "train"), model)
    override(params, found.settings, found.origin)
    override(params, settings, "settings")
    params.task.init_checkpoint = hub.locate(model).source
    params.task.train_data.input_path = str(built.folder / "train")
    params.task.validation_data.input_path = str(built.folder / "dev")
    task_class = task_factory.get_task_cls(type(params.task))
    finetune_seeds(params, task_class, runtime.prepare(params.runtime), model_dir)
    return entry.load("model").from_pretrained(model_dir, **entry.model_options)

"""The fine-tuning tasks: one entry for each, which every tool reads.

An entry says where the parts of a task are, and what tools must know of it before they load any of them. It
names modules and imports none, so that code on any floor may read it. Begin with TASKS.

A task of your own changes nothing here: an installed package names its TaskEntry as an entry point,

    [project.entry-points."xlnet_tf.tasks"]
    preference = "my_package.entry:TASK"
"""

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting

ENTRY_POINTS = "xlnet_tf.tasks"
ANSWERING = "xlnet_tf.serving.models:module_of_model"  # from a model to its ServingModule
SERVING_OPTIONS = "xlnet_tf.serving.models:options_of_run"  # from a run's folder to the options of the latter
PRETRAINER = "xlnet_tf.models.pretrainer:XLNetPretrainer"
LANGUAGE_MODEL = "language_model"  # the head of pretrained weights, which is of no fine-tuning task

# A head's variable: its name after the head's, its shape, and its name in the original and in Hugging Face;
# None: the format has no such head. checkpoints/names.py says how they are read.
Variable = tuple[str, str, str | None, str | None]


class Sizes(NamedTuple):
    """Sizes of examples without content.

    Attributes:
        seq_len: T, tokens of a sequence.
        num_labels: classes of a text, or tags of a word.
        sequences: options of a question, or candidates of a query.
        segment_len: tokens of the segments in which texts are read; 0: at once.
    """

    seq_len: int
    num_labels: int
    sequences: int
    segment_len: int = 0


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """A task that models are fine-tuned for. Classes and functions are given as "module:name".

    Attributes:
        name: what it is called everywhere.
        task: its FinetuningTask, whose module registers the task's settings under its EXPERIMENT.
        model: its model, an XLNetHead.
        serving: its ServingModule.
        synthetic: from Sizes to the columns and settings of its examples, for sets without content.
        head: the scope of the head's variables; with {task} in it, a checkpoint may have several such heads.
        variables: of the head, after that scope.
        builder: the command that builds its examples; empty: there is none.
        aliases: earlier names, which flags and manifests may have.
        examples: the task whose sets it reads, if it has none of its own: those of the settings.kind `name`.
        hugging_face: Hugging Face's model with such a head; empty: there is none.
        pipeline: what the hub calls the task; empty: it has no name for it.
        labels: whether the head's outputs are classes, which have labels.
        sequences: how many sequences an example has; None: any number.
        settings: flags of run_scripts.finetune that concern this task.
        export_settings: flags of run_scripts.export for weights without a run: options of the ServingModule.
        model_options: of the model's from_pretrained, for serving.
    """

    name: str
    task: str
    model: str
    serving: str
    synthetic: str
    head: str
    variables: tuple[Variable, ...]
    builder: str = ""
    aliases: tuple[str, ...] = ()
    examples: str = ""
    hugging_face: str = ""
    pipeline: str = ""
    labels: bool = False
    sequences: int | None = 1
    settings: tuple[Setting, ...] = ()
    export_settings: tuple[Setting, ...] = ()
    model_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def load(self, part: str) -> Any:
        """Imports and returns one of its parts: "task", "model", "serving" or "synthetic"."""
        return load(getattr(self, part))

    @property
    def head_kind(self) -> str:
        """The head's scope without the data set that it was trained on."""
        return self.head.removesuffix("_{task}")

    @property
    def experiment(self) -> str:
        """The name that the task's settings are registered under; imports the task's module."""
        return importlib.import_module(self.task.partition(":")[0]).EXPERIMENT


_SUMMARY = Setting("summary", "task.model.summary", ("last", "first", "mean", "attn"),
                   "Which tokens become the vector of a text.")  # fmt: skip
_IN_SEGMENTS = (
    Setting("segment_len", "task.model.segment_len", "integer",
            "Tokens of the segments in which long texts are read, each with memory; 0: at once.", 0),
    Setting("memory_len", "task.model.memory_len", "integer", "Tokens of memory; 0: --segment_len.", 0),
    Setting("memory_gradient", "task.model.memory_gradient", "integer",
            "Segments that the gradient of the last one flows back through the memory.", 0),
)  # fmt: skip
_OF_TEXTS = (
    _SUMMARY,
    Setting("head_name", "task.model.head_name", "string",
            "The data set in the names of the head's variables. Default: the preset's name, or task."),
    *_IN_SEGMENTS,
)  # fmt: skip
_LABELS = (
    Setting("class_weights", "task.class_weights", "string",
            "Weights of the classes in training: none, balanced (all weigh the same together), or "
            "LABEL:WEIGHT,LABEL:WEIGHT."),
    Setting("label_smoothing", "task.label_smoothing", "float",
            "Part of a label's probability that training spreads over all classes.", 0, 1),
)  # fmt: skip
_SAMPLING = Setting("sampling", "task.sampling", ("uniform", "balanced"),
                    "Whether training sees each example equally often, or each class.")  # fmt: skip
_ALERTS = (
    Setting("alert_label", "task.alert.label", "string", "The class whose texts are alerts."),
    Setting("alert_precision", "task.alert.precision", "float",
            "What alerts must reach on the dev examples, with as much recall as possible.", 0),
    Setting("alert_recall", "task.alert.recall", "float",
            "What alerts must reach on the dev examples, with as much precision as possible.", 0),
)  # fmt: skip
_ANSWERS = (
    Setting("n_best", "task.n_best", "integer", "Most answers to a question in nbest_predictions.json.", 1),
    Setting("max_answer_len", "task.max_answer_len", "integer", "Most tokens of an answer.", 1),
    Setting(
        "answer_precision",
        "task.answer_precision",
        "float",
        "Share of the given answers that must be right on the dev examples; others are refused.",
        0,
    ),
)
_EXPORT_OF_TEXTS = (
    Setting("head_name", "", "string", "Which head, if there are several."),
    Setting("pair", "", "boolean", "The model is of pairs of texts."),
)
_THRESHOLD = Setting("threshold", "", "float",
                     "The logit of no answer above which an answer is refused. Default: none is, as of "
                     "models that were trained with questions that all have an answer.")  # fmt: skip


def _dense(
    shape: str, original: str | None, hugging_face: str | None, name: str = "logits"
) -> tuple[Variable, ...]:
    """Returns the variables of a dense layer, which each format has under a name of its own."""
    parts = (("kernel", shape, "weight.T"), ("bias", shape.split()[-1], "bias"))
    return tuple(
        (
            f"{name}/{ours}",
            shape,
            original and f"{original}/{ours}",
            hugging_face and f"{hugging_face}.{external}",
        )
        for ours, shape, external in parts
    )


# Where an answer begins, where it ends given its beginning, and whether there is one.
_SPAN = (
    *_dense("D 1", "start_logits/dense", "start_logits.dense", "start/logits"),
    *_dense("2D D", "end_logits/dense_0", "end_logits.dense_0", "end/hidden"),
    ("end/norm/gamma", "D", "end_logits/LayerNorm/gamma", "end_logits.LayerNorm.weight"),
    ("end/norm/beta", "D", "end_logits/LayerNorm/beta", "end_logits.LayerNorm.bias"),
    *_dense("D 1", "end_logits/dense_1", "end_logits.dense_1", "end/logits"),
    *_dense("2D D", "answer_class/dense_0", "answer_class.dense_0", "answerable/hidden"),
    ("answerable/logits/kernel", "D 1", "answer_class/dense_1/kernel", "answer_class.dense_1.weight.T"),
)

TASKS = (
    TaskEntry(
        name="classification",
        task="xlnet_tf.tasks.classification.task:ClassificationTask",
        model="xlnet_tf.models.classifier:XLNetClassifier",
        serving="xlnet_tf.tasks.classification.serving:ClassificationModule",
        synthetic="xlnet_tf.tasks.classification.task:synthetic",
        builder="tfrecord_builders.classification",
        head="classification_{task}",
        variables=_dense("D C", "model/classification_{task}/logit", "classification_{task}.logits_proj"),
        hugging_face="XLNetForSequenceClassification",
        pipeline="text-classification",
        labels=True,
        settings=(*_OF_TEXTS, *_LABELS, _SAMPLING, *_ALERTS),
        export_settings=_EXPORT_OF_TEXTS,
    ),
    TaskEntry(
        name="regression",
        task="xlnet_tf.tasks.classification.task:ClassificationTask",
        model="xlnet_tf.models.classifier:XLNetRegressor",
        serving="xlnet_tf.tasks.classification.serving:RegressionModule",
        synthetic="xlnet_tf.tasks.classification.task:synthetic_regression",
        builder="tfrecord_builders.classification",
        examples="classification",
        head="regression_{task}",
        variables=_dense("D 1", "model/regression_{task}/logit", "regression_{task}.logits_proj"),
        hugging_face="XLNetForSequenceClassification",
        pipeline="text-classification",
        settings=_OF_TEXTS,
        export_settings=_EXPORT_OF_TEXTS,
    ),
    TaskEntry(
        name="question_answering",
        aliases=("squad",),
        task="xlnet_tf.tasks.question_answering.task:QuestionAnsweringTask",
        model="xlnet_tf.models.question_answering:XLNetQuestionAnswering",
        serving="xlnet_tf.tasks.question_answering.serving:QuestionAnsweringModule",
        synthetic="xlnet_tf.tasks.question_answering.task:synthetic",
        builder="tfrecord_builders.squad",
        head="span",
        variables=_SPAN,
        hugging_face="XLNetForQuestionAnswering",
        pipeline="question-answering",
        settings=(*_ANSWERS, *_IN_SEGMENTS),
        export_settings=(_THRESHOLD,),
    ),
    TaskEntry(
        name="multiple_choice",
        aliases=("choice", "race"),
        task="xlnet_tf.tasks.multiple_choice.task:MultipleChoiceTask",
        model="xlnet_tf.models.multiple_choice:XLNetMultipleChoice",
        serving="xlnet_tf.tasks.multiple_choice.serving:MultipleChoiceModule",
        synthetic="xlnet_tf.tasks.multiple_choice.task:synthetic",
        builder="tfrecord_builders.race",
        head="choice",
        variables=_dense("D 1", "logits/dense", "choice.logits_proj"),
        hugging_face="XLNetForMultipleChoice",
        pipeline="multiple-choice",
        sequences=None,
        settings=(_SUMMARY, *_IN_SEGMENTS),
        model_options={"num_choices": 1},
    ),
    TaskEntry(
        name="tagging",
        task="xlnet_tf.tasks.tagging.task:TaggingTask",
        model="xlnet_tf.models.token_classifier:XLNetTokenClassifier",
        serving="xlnet_tf.tasks.tagging.serving:TaggingModule",
        synthetic="xlnet_tf.tasks.tagging.task:synthetic",
        builder="tfrecord_builders.tagging",
        head="tagging",
        variables=_dense("D C", None, "classifier"),
        hugging_face="XLNetForTokenClassification",
        pipeline="token-classification",
        labels=True,
        settings=(*_IN_SEGMENTS, *_LABELS),
    ),
    TaskEntry(
        name="ranking",
        task="xlnet_tf.tasks.ranking.task:RankingTask",
        model="xlnet_tf.models.multiple_choice:XLNetRanker",
        serving="xlnet_tf.tasks.ranking.serving:RankingModule",
        synthetic="xlnet_tf.tasks.ranking.task:synthetic",
        builder="tfrecord_builders.ranking",
        head="ranking",
        variables=_dense("D 1", None, None),
        pipeline="text-ranking",
        sequences=None,
        settings=(
            _SUMMARY,
            Setting("ranking_loss", "task.loss", ("pointwise", "pairwise", "listwise"), "Loss of training."),
            *_IN_SEGMENTS,
        ),
        model_options={"num_choices": 1},
    ),
)


def load(reference: str) -> Any:
    """Imports and returns what is given as "module:name"."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def tasks() -> dict[str, TaskEntry]:
    """Returns all tasks by name: those of TASKS, then those of installed packages.

    Raises:
        UserError: the entry point of a package cannot be loaded, or its names are taken.
    """
    found = {task.name: task for task in TASKS}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            task = point.load()
        except Exception as error:  # whatever the package's code raises
            raise UserError(f"the task {point.value}, which a package installs, fails: {error!r}") from error
        taken = {name for other in found.values() for name in (other.name, *other.aliases)}
        if not isinstance(task, TaskEntry) or not taken.isdisjoint((task.name, *task.aliases)):
            raise UserError(
                f"{point.value}, which a package installs, is {task!r}: expected a TaskEntry of a new name"
            )
        found[task.name] = task
    return found


def canonical(name: str) -> str:
    """Returns today's name of a task, given that or an earlier one; the name of no task as it is."""
    return next((task.name for task in tasks().values() if name in task.aliases), name)


def names() -> list[str]:
    """Returns the names that flags take: those of all tasks, then the earlier ones."""
    return [*tasks(), *(alias for task in tasks().values() for alias in task.aliases)]


def find(name: str) -> TaskEntry:
    """Returns the task of a name, which may be an earlier one.

    Raises:
        UserError: there is no such task.
    """
    if (name := canonical(name)) not in tasks():
        raise UserError(f"there is no task {name!r}: expected one of {', '.join(tasks())}")
    return tasks()[name]


def of_examples(examples) -> TaskEntry:
    """Returns the task of an ExampleSet.

    Raises:
        UserError: there is no such task.
    """
    if (name := canonical(examples.task)) not in tasks():
        raise UserError(
            f"{examples.folder} has examples for {examples.task!r}: expected one of {', '.join(tasks())}"
        )
    return tasks()[name_of(name, examples.settings.get("kind"))]


def name_of(name: str, kind: Any) -> str:
    """Returns the task of examples for `name`, which may be an earlier name, with this settings.kind."""
    name = canonical(name)
    return next((task.name for task in tasks().values() if (task.examples, task.name) == (name, kind)), name)


def of_head(scope: str) -> TaskEntry | None:
    """Returns the task with a head's scope, such as "span" or "classification_imdb"; None if none has it."""
    kinds = (scope, f"{scope.partition('_')[0]}_{{task}}")
    return next((task for task in tasks().values() if task.head in kinds), None)


def settings(which: str) -> dict[str, dict[str, Setting]]:
    """Returns the settings that are of some tasks only: the flag's name -> the task's name -> its setting.

    Args:
        which: "settings" or "export_settings".
    """
    found: dict[str, dict[str, Setting]] = {}
    for task in tasks().values():
        for setting in getattr(task, which):
            found.setdefault(setting.flag, {})[task.name] = setting
    return found

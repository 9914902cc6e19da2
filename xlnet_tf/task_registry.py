"""The fine-tuning tasks: one entry for each, which every tool reads.

Tasks register from above: the folder of a task in xlnet_tf/tasks/ has an entry.py with the names of its
parts, and what tools must know before they load any of them. So lower layers can read what a task is without
importing it. OWN lists the entries; other code names nothing from higher layers.

To add a task of your own, change nothing here: an installed package declares its TaskEntry as an entry point,

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
OWN = (
    "xlnet_tf.tasks.classification.entry:CLASSIFICATION",
    "xlnet_tf.tasks.classification.entry:REGRESSION",
    "xlnet_tf.tasks.question_answering.entry:QUESTION_ANSWERING",
    "xlnet_tf.tasks.multiple_choice.entry:MULTIPLE_CHOICE",
    "xlnet_tf.tasks.tagging.entry:TAGGING",
    "xlnet_tf.tasks.ranking.entry:RANKING",
)
# Two more names from higher layers: a class that Keras loads, and the serving options of a run's settings.
PRETRAINER = "xlnet_tf.models.pretrainer:XLNetPretrainer"
SERVING_OPTIONS = "xlnet_tf.serving.tensorflow_sources:options_of_run"
LANGUAGE_MODEL = "language_model"  # the head of pretrained weights; not a fine-tuning task

# A head's variable: its name after the head's, its shape, and its name in the original and in Hugging Face;
# None: the format has no such head. checkpoints/names.py says how they are read.
Variable = tuple[str, str, str | None, str | None]


class Sizes(NamedTuple):
    """Sizes of examples without content."""

    seq_len: int  # T, tokens of a sequence
    num_labels: int  # classes of a text, or tags of a word
    sequences: int  # options of a question, or candidates of a query
    segment_len: int = 0  # tokens of the segments in which texts are read; 0: at once


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """A task that models are fine-tuned for. Classes and functions are given as "module:name"."""

    name: str
    task: str  # its FinetuningTask, whose module registers the task's settings under its EXPERIMENT
    model: str  # an XLNetHead
    serving: str  # an ExportableModel
    synthetic: str  # from Sizes to the columns and settings of its examples, for sets without content
    head: str  # scope of the head's variables; with {task} in it, a checkpoint may have several such heads
    variables: tuple[Variable, ...]  # those of the head, after that scope
    answering: str = ""  # its Answering, which answers texts without TensorFlow; empty: there is none
    builder: str = ""  # the command that builds its examples; empty: there is none
    aliases: tuple[str, ...] = ()  # earlier names, which flags and manifests may have
    examples: str = ""  # the task whose sets, of the settings.kind `name`, it reads; empty: its own
    hugging_face: str = ""  # Hugging Face's model with such a head; empty: there is none
    pipeline: str = ""  # the hub's name for the task; empty: there is none
    labels: bool = False  # whether the head's outputs are classes, which have labels
    sequences: int | None = 1  # of an example; None: any number
    settings: tuple[Setting, ...] = ()  # flags of run_scripts.finetune that concern this task
    export_settings: tuple[Setting, ...] = ()  # those of run_scripts.export, options of `serving`
    # Of the model's from_pretrained, for serving.
    model_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def load(self, part: str) -> Any:
        """Imports and returns one of its parts: "task", "model", "serving", "answering" or "synthetic"."""
        return load(getattr(self, part))

    @property
    def head_kind(self) -> str:
        """The head's scope without the data set that it was trained on."""
        return self.head.removesuffix("_{task}")

    @property
    def experiment(self) -> str:
        """The name that the task's settings are registered under; imports the task's module."""
        return importlib.import_module(self.task.partition(":")[0]).EXPERIMENT


def dense_variables(
    shape: str, original: str | None, hugging_face: str | None, name: str = "logits"
) -> tuple[Variable, ...]:
    """Returns the variables of a dense layer, with their names in each format."""
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


def load(reference: str) -> Any:
    """Imports and returns the object named "module:name"."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def own_tasks() -> tuple[TaskEntry, ...]:
    return tuple(map(load, OWN))


@functools.cache
def tasks() -> dict[str, TaskEntry]:
    """Returns all tasks by name: the project's own, then those of installed packages."""
    found = {task.name: task for task in own_tasks()}
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
    """Returns the current name of a task, given this or an earlier one; other names stay unchanged."""
    return next((task.name for task in tasks().values() if name in task.aliases), name)


def names() -> list[str]:
    """Returns the names that flags take: those of all tasks, then the earlier ones."""
    return [*tasks(), *(alias for task in tasks().values() for alias in task.aliases)]


def find(name: str) -> TaskEntry:
    """Returns the task of this current or earlier name."""
    if (name := canonical(name)) not in tasks():
        raise UserError(f"there is no task {name!r}: expected one of {', '.join(tasks())}")
    return tasks()[name]


def entry_for_set(examples) -> TaskEntry:
    if (name := canonical(examples.task)) not in tasks():
        raise UserError(
            f"{examples.folder} has examples for {examples.task!r}: expected one of {', '.join(tasks())}"
        )
    return tasks()[name_of(name, examples.settings.get("kind"))]


def name_of(name: str, kind: Any) -> str:
    """Returns the task of examples for `name` (which may be an earlier name) with this settings.kind."""
    name = canonical(name)
    return next((task.name for task in tasks().values() if (task.examples, task.name) == (name, kind)), name)


def entry_for_scope(scope: str) -> TaskEntry | None:
    """Returns the task with a head's scope, such as "span" or "classification_imdb"; None if none has it."""
    kinds = (scope, f"{scope.partition('_')[0]}_{{task}}")
    return next((task for task in tasks().values() if task.head in kinds), None)


def settings(which: str) -> dict[str, dict[str, Setting]]:
    """Returns task-specific "settings" or "export_settings": flag -> task's name -> its setting."""
    found: dict[str, dict[str, Setting]] = {}
    for task in tasks().values():
        for setting in getattr(task, which):
            found.setdefault(setting.flag, {})[task.name] = setting
    return found

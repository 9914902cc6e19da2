"""Finds the task that a set of examples is for."""

import importlib

from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet

FINETUNING = ("classification", "squad", "choice", "tagging", "ranking")


def experiment_of(folder: str) -> str:
    """Returns the name of the experiment, registered, for the examples in a folder.

    Args:
        folder: of a set of examples, or of a run that was trained on one.

    Raises:
        UserError: there is no such task.
        FileNotFoundError: there are no examples.
    """
    task = ExampleSet.load(folder).task
    if task not in FINETUNING:
        raise UserError(f"{folder} has examples for {task!r}: expected one of {', '.join(FINETUNING)}")
    return importlib.import_module(f"xlnet_tf.tasks.{task}").EXPERIMENT

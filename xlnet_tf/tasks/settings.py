"""Settings that all fine-tuning tasks share, their defaults, and what follows from other settings."""

import dataclasses
import math

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from xlnet_tf.errors import UserError
from xlnet_tf.records.batching import WINDOW
from xlnet_tf.tasks import suggestions
from xlnet_tf.tasks.model_config import READING, EncoderModelConfig
from xlnet_tf.training.config import RuntimeConfig, TrainerConfig

BATCHING = ("length", "packed", "fixed")


@dataclasses.dataclass
class ExamplesConfig(base_config.Config):
    """Which examples to read.

    Attributes:
        input_path: folder of a set of examples.
        global_batch_size: examples of a step over all devices; 0 for validation: of a part of a training
            step (see trainer.accumulation_steps).
        lengths: the tokens, ascending, that rows may be cut to; none: any, where one graph computes rows of
            any length, and else, on TPUs and with XLA, a few that are chosen for the set.
    """

    input_path: str = ""
    global_batch_size: int = 0
    lengths: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class FinetuningConfig(cfg.TaskConfig):
    """Settings that all fine-tuning tasks share.

    Attributes (those that have a flag are described in its help):
        model: the network.
        train_data: examples to train on.
        validation_data: examples to evaluate on; no path, no evaluation.
        batching: "length" puts examples of like length into a batch, whose rows are cut to it; "fixed" takes
            whole rows in random order, "packed" the same with several examples in a row. Runs of versions
            that had no such setting have fixed batches. The default of new runs is length or, on TPUs, packed
            where it computes fewer positions.
    """

    model: EncoderModelConfig = dataclasses.field(default_factory=EncoderModelConfig)
    train_data: ExamplesConfig = dataclasses.field(
        default_factory=lambda: ExamplesConfig(global_batch_size=suggestions.BATCH)
    )
    validation_data: ExamplesConfig = dataclasses.field(default_factory=ExamplesConfig)
    epochs: float = suggestions.EPOCHS
    warmup_fraction: float = 0.1
    seed: int = 0
    batching: str | None = "fixed"
    sort_window: int = WINDOW
    reinit_layers: int = 0


def finetuning_experiment(task: FinetuningConfig) -> cfg.ExperimentConfig:
    """Returns an experiment with the defaults of fine-tuning: one evaluation and checkpoint an epoch.

    How texts are read is left open; FinetuningTask fills it in.
    """
    trainer = TrainerConfig(train_steps=0, validation_interval=0, checkpoint_interval=0, max_to_keep=5)
    trainer.optimizer_config.learning_rate = suggestions.LEARNING_RATE
    trainer.optimizer_config.warmup_steps = 0
    task.model.override(dict.fromkeys(READING))  # not given: FinetuningTask fills it in
    task.batching = None
    return cfg.ExperimentConfig(task=task, trainer=trainer, runtime=RuntimeConfig())


def fill_defaults(params: cfg.ExperimentConfig, records: int):
    """Fills in what depends on the size of the training set: steps, warm-up, intervals, batch sizes."""
    task, trainer = params.task, params.trainer
    if task.epochs <= 0 and not trainer.train_steps:
        raise UserError(
            f"task.epochs (--epochs) is {task.epochs} and train_steps is 0: expected more of either"
        )
    batch_size = task.train_data.global_batch_size
    trainer.train_steps = trainer.train_steps or max(1, math.ceil(task.epochs * records / batch_size))
    trainer.validation_interval = trainer.validation_interval or min(
        math.ceil(records / batch_size), trainer.train_steps
    )
    trainer.checkpoint_interval = trainer.checkpoint_interval or trainer.validation_interval
    trainer.steps_per_loop = min(trainer.steps_per_loop, trainer.validation_interval)
    if not trainer.optimizer_config.warmup_steps:
        trainer.optimizer_config.warmup_steps = int(task.warmup_fraction * trainer.train_steps)
    fill_evaluation_defaults(params)


def fill_evaluation_defaults(params: cfg.ExperimentConfig):
    """Fills in the evaluation's batch: part of a training step, as what fits with gradients fits without."""
    training, evaluation = params.task.train_data, params.task.validation_data
    if not evaluation.global_batch_size:
        rows = training.global_batch_size // max(1, params.trainer.accumulation_steps)
        evaluation.global_batch_size = max(1, rows)  # 0: training is refused for it, later

"""How long to fine-tune, how often to look, and at how much: what follows from other settings."""

import math

from official.core import config_definitions as cfg


def complete(params: cfg.ExperimentConfig, records: int):
    """Fills in what depends on the number of examples: steps, warm-up, intervals, batch sizes.

    Args:
        params: the experiment's settings; changed.
        records: size of the training set.
    """
    task, trainer = params.task, params.trainer
    batch_size = task.train_data.global_batch_size
    trainer.train_steps = trainer.train_steps or max(1, math.ceil(task.epochs * records / batch_size))
    trainer.validation_interval = trainer.validation_interval or min(
        math.ceil(records / batch_size), trainer.train_steps
    )
    trainer.checkpoint_interval = trainer.checkpoint_interval or trainer.validation_interval
    trainer.steps_per_loop = min(trainer.steps_per_loop, trainer.validation_interval)
    if not trainer.optimizer_config.warmup_steps:
        trainer.optimizer_config.warmup_steps = int(task.warmup_fraction * trainer.train_steps)
    complete_evaluation(params)


def complete_evaluation(params: cfg.ExperimentConfig):
    """Fills in the evaluation's batch: a part of a training step, as what fits with gradients fits without.

    Args:
        params: the experiment's settings; changed.
    """
    training, evaluation = params.task.train_data, params.task.validation_data
    if not evaluation.global_batch_size:
        rows = training.global_batch_size // max(1, params.trainer.accumulation_steps)
        evaluation.global_batch_size = max(1, rows)  # 0: training is refused for it, later

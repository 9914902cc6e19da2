"""Runs a training from its settings to its last evaluation, or resumes it where it stopped.

A run lives in its model_dir: params.yaml (all settings), model.json (the model card), what the task needs for
later use, checkpoints, history.jsonl and TensorBoard summaries. On SIGTERM it saves a checkpoint. Started
again with the same model_dir, it resumes from the newest one. Settings that affect the numbers must then be
unchanged (`checks.MUST_MATCH_ON_RESUME`), the batch size included, or the run is refused. The machine may
change: number and kind of devices, micro-batches, intervals, validation records; but with dropout, another
product of replicas and micro-batches draws other masks. Which steps are skipped and whether memory is saved
may change, too; the run reports it.
"""

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf
import tf_keras
import yaml
from official.core import train_utils

from xlnet_tf import files
from xlnet_tf.checkpoints.model_card import CARD_FILE, ModelCard
from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.errors import UserError, tf_errors_as_user_errors
from xlnet_tf.ownership import Ownership, folder_lease
from xlnet_tf.training import checks, interruption, runtime
from xlnet_tf.training.loop import TrainingLoop
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.task import Task
from xlnet_tf.training.trainer import Trainer


def run_training(params, task: Task, strategy: tf.distribute.Strategy, model_dir: str) -> dict[str, float]:
    """Trains to `params.trainer.train_steps`, evaluating at the start, at intervals and at the end.

    Returns the metrics of the last evaluation; empty without validation data.

    Raises:
        UserError: settings, folder or data do not fit, or a step does not fit into a device's memory.
        Diverged: too many steps were skipped, or the weights are NaN.
        Interrupted: the process was asked to end, or another host was lost; a new start resumes it.
    """
    model_dir = model_dir.rstrip("/")  # in a bucket FOLDER//NAME is another object, and no pattern matches it
    checks.check_batch_sizes(params, strategy.num_replicas_in_sync)
    checks.check_settings(params, model_dir)
    checks.check_data(params, task.data)
    with interruption.named_damage(task.data, params.trainer.check_data_gb), tf_errors_as_user_errors():
        checks.check_inputs(params, task.data, strategy.num_replicas_in_sync)
    params.trainer.summary_interval = params.trainer.steps_per_loop  # summaries are written with the reports
    with claim_model_dir(strategy, model_dir) as owner:
        checks.check_resumable(params, task, model_dir)  # on all hosts, like the claim
        with _run_files(params, task, model_dir, owner):
            trainer = _build_trainer(params, task, strategy, model_dir)
            # Orbit prints each message besides logging it, which would tear the progress bar.
            with (
                open(os.devnull, "w") as nowhere,
                contextlib.redirect_stdout(nowhere),
                interruption.named_damage(task.data, params.trainer.check_data_gb),
                tf_errors_as_user_errors(),
                interruption.lost_hosts(strategy, model_dir),
                interruption.named_lack_of_memory("training", interruption.SMALLER_STEP),
            ):
                try:
                    return TrainingLoop(trainer, model_dir, owner).run()
                finally:
                    # Now, and not when the trainer is collected: the end of an iterator waits for a thread
                    # of TensorFlow's that sleeps the longer the older the iterator is, up to a minute.
                    trainer.train_dataset = None


@contextlib.contextmanager
def claim_model_dir(strategy: tf.distribute.Strategy, model_dir: str) -> Iterator[Ownership | None]:
    """Keeps other runs out of a folder while the block runs; yields None on hosts that do not write there.

    Raises UserError on all hosts if another process trains there: if only one refused, the others would take
    it for lost and be restarted for ever.
    """
    with contextlib.ExitStack() as stack:
        owner, refusal = None, None
        if strategy.extended.should_checkpoint:  # one host writes; all compute
            tf.io.gfile.makedirs(model_dir)
            try:
                owner = stack.enter_context(folder_lease(model_dir, "training", "--model_dir"))
            except UserError as error:
                refusal = error
        with interruption.lost_hosts(strategy, model_dir):
            if interruption.OnAnyHost(strategy)(refusal is not None):
                raise refusal or UserError(f"{model_dir} is in use, as the first host's message says")
        yield owner


@contextlib.contextmanager
def _run_files(params, task: Task, model_dir: str, owner: Ownership | None) -> Iterator[None]:
    """Writes the files that describe the run; removes them if the block fails before anything is saved."""
    if not owner:
        yield
        return
    before = set(tf.io.gfile.glob(f"{model_dir}/*")) - {f"{model_dir}/params.yaml"}
    task.save_assets(model_dir)
    # Last, so that everything a later start compares it with exists.
    files.write(f"{model_dir}/params.yaml", yaml.dump(params.as_dict(), default_flow_style=False))
    ModelCard.read(model_dir, {CARD_FILE: None}).write(model_dir)
    written = set(tf.io.gfile.glob(f"{model_dir}/*")) - before
    try:
        yield
    except UserError:
        # The folder is then free for a start with other settings.
        if not newest(model_dir):
            owner.check()
            for path in written:
                tf.io.gfile.remove(path)
        raise


def _build_trainer(params, task: Task, strategy: tf.distribute.Strategy, model_dir: str) -> Trainer:
    if runtime.has_remote_hosts(strategy):
        task.data.use_tf_reader(params.trainer.train_steps)
    tf_keras.utils.set_random_seed(params.task.seed)
    with strategy.scope(), interruption.lost_hosts(strategy, model_dir):  # initial weights go to all hosts
        return Trainer(
            params,
            task,
            task.build_model(),
            build_optimizer(params.trainer.optimizer_config, params.trainer.train_steps, task.n_layer),
            evaluate=bool(params.task.validation_data.input_path),
            checkpoint_exporter=train_utils.maybe_create_best_ckpt_exporter(params, model_dir),
        )

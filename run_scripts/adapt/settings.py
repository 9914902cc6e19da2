"""What an adaptation takes from its checkpoint: the form of its records, and the settings of its training."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from run_scripts.adapt import texts
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf import files
from xlnet_tf.checkpoints.checkpoint import Checkpoint
from xlnet_tf.checkpoints.of_runs import optimizer_state
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import FILE_NAME, KIND, Manifest
from xlnet_tf.text.tokenizer import MODEL_FILE

_MASK = {"alpha": "mask_alpha", "beta": "mask_beta"}  # names in a manifest and in the builder's options
RATE = 0.25  # of the peak learning rate of the checkpoint's own pretraining
EVALUATIONS, WARMUP = 8, 0.1


def record_options(
    checkpoint: Checkpoint,
    inputs: Sequence[epath.Path],
    folder: epath.Path,
    split: str,
    rows: int,
    **given: Any,
) -> PretrainingOptions:
    """Returns how to build records in the form that the checkpoint was pretrained with, where it says so.

    Args:
        checkpoint: whose tokenizer and cleaning are taken.
        inputs: files of documents.
        rows: of a batch, for which there are to be streams enough.
        **given: options that the user has given; None: not given.
    """
    form: dict[str, Any] = {}
    path = epath.Path(checkpoint.path_of(FILE_NAME))
    if path.exists() and files.read_json(path).get("kind") == KIND:
        manifest = Manifest.load(path)
        names = ("use_eod", "sentence_split", "seq_len", "reuse_len", "num_predict", "perm_size", "objective")
        form = {name: getattr(manifest, name) for name in (*names, "functional_tokens")}
        form |= {_MASK.get(name, name): value for name, value in manifest.mask.items()}
        form["bidirectional"] = len(manifest.directions) > 1
    given = {name: value for name, value in given.items() if value is not None}
    if "seq_len" in given:
        for name in ("reuse_len", "num_predict", "perm_size"):
            form.pop(name, None)
    if cleaning := checkpoint.card.cleaning:
        form |= {"lower": cleaning.lower, "keep_accents": cleaning.keep_accents}
    options = PretrainingOptions(
        input=tuple(map(str, inputs)),
        tokenizer=checkpoint.path_of(MODEL_FILE),
        output_dir=str(folder),
        split=split,
        **form | given,
    )
    # About four bytes a token. At least four streams for each row of a batch, read in both directions.
    tokens = sum(path.stat().length for path in inputs if path.exists()) // 4
    segments = (1 + options.bidirectional) * tokens // (options.reuse_len or options.seq_len // 2)
    streams = min(64, max(1, segments // (4 * rows)))
    return dataclasses.replace(options, stream_segments=streams)


def experiment_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the settings that follow from a checkpoint, over those of the recipe."""
    from xlnet_tf.tasks.pretraining import ModelConfig

    known = {field.name for field in dataclasses.fields(ModelConfig)}
    if checkpoint.config is None:
        raise UserError(f"init_checkpoint: {checkpoint.path} has no architecture next to it")
    model = {name: value for name, value in checkpoint.card.settings.items() if name in known}
    found: dict[str, Any] = {"task": {"model": model | checkpoint.config.to_dict()}}
    path = epath.Path(checkpoint.path_of("params.yaml"))
    params = files.read_yaml(path) if path.exists() else {}
    if "optimizer_config" in params.get("trainer", {}) and checkpoint.card.task == "language_model":
        optimizer = dict(params["trainer"]["optimizer_config"])
        for name in ("warmup_steps", "min_lr_ratio", "updates_before"):
            optimizer.pop(name, None)
        optimizer["learning_rate"] *= RATE
        found["trainer"] = {"optimizer_config": optimizer}
        found["task"]["train_data"] = {"global_batch_size": params["task"]["train_data"]["global_batch_size"]}
    return found


def complete(
    params, checkpoint: Checkpoint, records: Mapping[str, Manifest], epochs: float, keep_optimizer: bool
):
    """Fills in what depends on the records and on the checkpoint's optimizer.

    Args:
        params: the experiment's settings; changed.
        checkpoint: to begin with.
        records: the sets, by the names of `texts`.
        epochs: passes over the training records, unless a number of steps is given.
        keep_optimizer: whether to take over the moments, if they were kept.
    """
    task, trainer = params.task, params.trainer
    task.init_checkpoint = checkpoint.source or checkpoint.path
    task.train_data.input_path = str(records[texts.TRAIN].folder)
    task.validation_data.input_path = str(records[texts.DEV].folder)
    if texts.GENERAL in records:
        task.general_data.input_path = str(records[texts.GENERAL].folder)
    else:
        task.max_general_rise = 0.0
    rows = task.train_data.global_batch_size
    if (streams := records[texts.TRAIN].num_streams) < rows:
        raise UserError(
            f"--input: there is text for {streams} rows of a batch, and batch_size is {rows}: give more text "
            "or a smaller --batch_size"
        )
    trainer.train_steps = trainer.train_steps or max(
        1, math.ceil(epochs * records[texts.TRAIN].records / rows)
    )
    steps, loop = trainer.train_steps, trainer.steps_per_loop
    interval = trainer.validation_interval or -(-steps // EVALUATIONS)
    trainer.steps_per_loop = loop = min(loop, interval)
    trainer.validation_interval = trainer.validation_interval or interval // loop * loop
    trainer.checkpoint_interval = trainer.checkpoint_interval or trainer.validation_interval
    optimizer = trainer.optimizer_config
    optimizer.warmup_steps = optimizer.warmup_steps or int(WARMUP * steps)
    if keep_optimizer and (state := optimizer_state(checkpoint)):
        optimizer.updates_before = state.updates

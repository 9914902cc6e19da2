r"""Pretrains XLNet on records: those that `python -m tfrecord_builders.pretraining` built.

    python -m run_scripts.pretrain --train_data=runs/demo/records/train --dev_data=runs/demo/records/dev \
        --model_dir=runs/demo/model

Settings come, each over the one before, from the defaults, --config_file (a recipe of
run_scripts/recipes/ by its name, or a yaml file), the flags, and --params_override. The same command, started
again, resumes where the run stopped. With --dry_run it checks everything and trains nothing.
"""

from collections.abc import Sequence

from absl import flags

from run_scripts.common import experiment, help_screens, training_flags
from xlnet_tf import errors, folders, hub
from xlnet_tf.cli import command_line
from xlnet_tf.config import MOST_MEMORY
from xlnet_tf.flags import Setting, from_flags

SETTINGS = (
    Setting("train_data", "task.train_data.input_path", str, "Folder of training records."),
    Setting("dev_data", "task.validation_data.input_path", str, "Folder of records to evaluate on."),
    Setting("batch_size", "task.train_data.global_batch_size", int, "Segments per step, all devices.",
            1, training_flags.ROWS),
    Setting("dev_batch_size", "task.validation_data.global_batch_size", int,
            "Segments per evaluation step, all devices; 0: batch_size / accumulation_steps.", 0,
            training_flags.ROWS),
    Setting("init_checkpoint", "task.init_checkpoint", str,
            "Weights that a new run begins with: a folder (ours, the original's, Hugging Face's) or hf://OWNER/NAME."),
    Setting("memory_len", "task.model.memory_len", int,
            "Tokens of memory; 0: none. Default: three quarters of a segment.", 0, MOST_MEMORY + 1),
    Setting("memory_within_document", "task.model.memory_within_document", bool,
            "Hide memory of earlier documents."),
    Setting("next_sentence_weight", "task.model.next_sentence_weight", float,
            "Weight of the next-sentence loss; 0: none.", 0),
    Setting("permutation", "task.permutation", ("precomputed", "online"),
            "Targets and orders of the records, or drawn anew in every epoch."),
    Setting("seed", "task.seed", int, "Random seed for initial weights, dropout and record order.", 0,
            training_flags.SEEDS),
    Setting("train_steps", "trainer.train_steps", int, "Steps in all.", 1),
    Setting("checkpoint_interval", "trainer.checkpoint_interval", int, "Steps between checkpoints.", 1),
    Setting("eval_interval", "trainer.validation_interval", int,
            "Steps between evaluations; the first interval has three more.", 1),
    *training_flags.MODEL,
    *training_flags.TRAINER,
    *training_flags.RUNTIME,
)  # fmt: skip


HELP_SCREEN = help_screens.pretrain(SETTINGS)


def main(_: Sequence[str]):
    from etils import epath

    from xlnet_tf.records.manifest import FILE_NAME, Manifest

    settings = experiment.run_options(SETTINGS, flags.FLAGS)
    checks = from_flags(experiment.DryRunOptions)
    folders.claim(settings.model_dir, folders.RUN, flag="--model_dir")
    # What is not there is named before TensorFlow is loaded. A run that resumes needs no init_checkpoint.
    for name in ("train_data", "dev_data"):
        folder = settings.given.get(name)
        if folder and not (epath.Path(folder) / FILE_NAME).exists():
            Manifest.load(folder)
    if not epath.Path(settings.model_dir).exists():
        hub.require(settings.given.get("init_checkpoint"), "init_checkpoint: ")

    from xlnet_tf.tasks.pretraining import task as pretraining
    from xlnet_tf.training.report import FILE as REPORT

    params = experiment.load(pretraining.EXPERIMENT, SETTINGS, settings)
    if checks.show_config:
        from run_scripts.common import show_config

        origins = show_config.origins(pretraining.EXPERIMENT, SETTINGS, settings, {})
        print(show_config.table(params, pretraining.build_task(params), origins))
        return
    if checks.dry_run:
        from run_scripts.common import dry_run

        task = pretraining.build_task(params)
        dry_run.check_and_print(params, task, checks.topology, settings.model_dir, checks.price_per_hour)
        return
    for name, value in pretraining.pretrain(params, settings.model_dir).items():
        print(f"{name:>24}  {value:.4f}")
    print(f"\nto look at the run, and for what to do next: {settings.model_dir}/{REPORT}")


if __name__ == "__main__":
    experiment.define_flags(SETTINGS)
    experiment.define_dry_run_flags()
    command_line.require_one_of("train_data", "config_file", "params_override")
    errors.run(main)

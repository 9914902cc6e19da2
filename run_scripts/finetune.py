r"""Fine-tunes XLNet: on a table of your own, or on examples that a builder (`xlnet-tf build`) made.

    python -m run_scripts.finetune --train=reviews.csv --init_checkpoint=runs/demo/model
    python -m run_scripts.finetune --data=records/sst-2 --init_checkpoint=xlnet_cased_L-12_H-768_A-12 \
        --config_file=glue_base --model_dir=runs/sst-2

With --train, task, columns and length are found, the examples are built in the run's folder (runs/reviews),
and a part is held out to evaluate on. The examples of --data know their task. Settings come, each over the
one before, from the task's defaults, what suits the model's size, --config_file (a recipe by its name, or a
yaml file), the flags, and --params_override. The same command, started again, resumes where the run stopped;
with --dry_run it checks everything and trains nothing. MODEL_DIR/best keeps the best weights on dev.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags, logging

from run_scripts.common import experiment, help_screens, own_tables, training_flags
from run_scripts.common.sweeps import variants
from tfrecord_builders.common.tables import default_model_dir
from xlnet_tf import errors, files, folders, hub, task_registry
from xlnet_tf import flags as flags_lib
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting, check_task, define_of_tasks, from_flags, given, option

SETTINGS = (
    Setting("batch_size", "task.train_data.global_batch_size", int, "Examples per step, all devices.",
            1, training_flags.ROWS),
    Setting("dev_batch_size", "task.validation_data.global_batch_size", int,
            "Examples per evaluation step, all devices; 0: batch_size / accumulation_steps.", 0,
            training_flags.ROWS),
    Setting("init_checkpoint", "task.init_checkpoint", str,
            "Weights to begin with: a folder (ours, the original's, Hugging Face's) or hf://OWNER/NAME."),
    Setting("reinit_layers", "task.reinit_layers", int,
            "Top layers that begin with random weights instead of init_checkpoint's, and all above them: a "
            "cure for runs on small sets that fail.", 0),
    Setting("seed", "task.seed", int,
            "Random seed for the head's weights, dropout and the order of examples.", 0,
            training_flags.SEEDS),
    Setting("epochs", "task.epochs", float, "Passes over the training data, if train_steps is 0.", 0,
            1_000_000),
    Setting("train_steps", "trainer.train_steps", int, "Steps in all; 0: as --epochs says.", 0),
    Setting("warmup_fraction", "task.warmup_fraction", float,
            "Part of all steps until the peak learning rate, if warmup_steps is 0.", 0, 1),
    Setting("batching", "task.batching", ("length", "packed", "fixed"),
            "length puts examples of like length into a batch and cuts its rows to it; packed puts several "
            "examples of a random batch into a row; fixed takes whole rows. Default: length; on TPUs packed "
            "where that computes fewer positions."),
    Setting("sort_window", "task.sort_window", int,
            "Batches within which examples are sorted by length.", 1),
    Setting("checkpoint_interval", "trainer.checkpoint_interval", int,
            "Steps between checkpoints; 0: those between evaluations.", 0),
    Setting("eval_interval", "trainer.validation_interval", int,
            "Steps between evaluations; 0: an epoch.", 0),
    *training_flags.MODEL,
    *training_flags.TRAINER,
    *training_flags.RUNTIME,
)  # fmt: skip


HELP_SCREEN = help_screens.finetune(SETTINGS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """Which examples are trained on, and how many runs there are."""

    data: str = option("Folder of built examples, with train and dev in it.", "")
    dev_split: str = option("Which of its folders to evaluate on; empty: none.", "dev")
    max_leaked_dev: float = option(
        "Largest part of the dev examples that may be training examples, too; more is an error.",
        0.1,
        least=0,
        most=1,
        aliases=("max_shared",),
    )
    num_seeds: int = option(
        "Number of seeds, from --seed on, to run; reports the median.", 1, least=1, most=10_000
    )
    sweep: Sequence[str] = option(
        "Values of a setting to try, as learning_rate:1e-5,2e-5,3e-5, or a range, as 1e-5..5e-5; by its flag "
        "or its path. Of several settings, all combinations; each with --num_seeds. Marks the best on dev.",
        (),
        repeated=True,
    )
    sweep_samples: int = option(
        "Combinations of the --sweep to draw at random; 0: all of them.", 0, least=0, most=10_000
    )

    def folder(self, split: str) -> str:
        """Returns the folder of a split; "" if there is no such split."""
        return f"{self.data}/{split}" if split else ""


def define_flags():
    experiment.define_flags(SETTINGS, own_tables.FinetuneRunOptions)
    define_of_tasks(task_registry.settings("settings"))
    experiment.define_dry_run_flags()
    flags_lib.define_flags(FinetuneOptions, own_tables.TableOptions)
    command_line.require_one_of("data", "train")
    command_line.require_one_of("model_dir", "train")


def check_data(options: FinetuneOptions, model_dir: str):
    """Raises UserError if there is no dev set, or if a new run would train on too much of it."""
    from etils import epath

    from xlnet_tf.records import example_report
    from xlnet_tf.records.examples import ExampleSet

    if not options.dev_split:
        return
    if not epath.Path(options.folder(options.dev_split)).exists():
        raise UserError(
            f"{options.data} has {', '.join(path.name for path in files.entries(options.data))}, and no "
            f"{options.dev_split} to evaluate on: build it (--dev of the builder), name another with "
            "--dev_split, or train without evaluations (--dev_split=)"
        )
    if folders.look(model_dir)[0] not in (folders.RUN, folders.RUNS):
        splits = {"train": "train", "dev": options.dev_split}
        sets = {name: ExampleSet.load(options.folder(split)) for name, split in splits.items()}
        example_report.check_shared(sets, options.max_leaked_dev)


def set_data(params, options: FinetuneOptions):
    task = params.task
    for config, split in ((task.train_data, "train"), (task.validation_data, options.dev_split)):
        if config.input_path and config.input_path != options.folder(split):
            logging.warning("--data and --dev_split count, not %s of the settings", config.input_path)
        config.input_path = options.folder(split)


def main(_: Sequence[str]):
    from xlnet_tf.records.examples import ExampleSet

    options, checks = from_flags(FinetuneOptions), from_flags(experiment.DryRunOptions)
    own, init_checkpoint = from_flags(own_tables.TableOptions), flags.FLAGS.init_checkpoint
    own_tables.check(own, options.data, init_checkpoint, bool(options.sweep) or options.num_seeds > 1)
    flags.FLAGS.model_dir = flags.FLAGS.model_dir or default_model_dir(own.train)
    model_dir, of_tasks = flags.FLAGS.model_dir, task_registry.settings("settings")
    folders.claim(model_dir, folders.RUN, folders.RUNS, flag="--model_dir")
    built = None
    if own.train:
        hub.require(init_checkpoint, "init_checkpoint: ")
        built = own_tables.build(own, model_dir, init_checkpoint, warn=not checks.dry_run)
        options = dataclasses.replace(options, data=str(built.folder))
    entry = task_registry.entry_for_set(ExampleSet.load(options.folder("train")))
    check_task(of_tasks, given(of_tasks), entry.name)
    check_data(options, model_dir)
    settings = (*SETTINGS, *entry.settings)
    run = experiment.run_options(settings, flags.FLAGS)
    hub.require(run.given.get("init_checkpoint"), "init_checkpoint: ")

    from official.core import task_factory  # TensorFlow is loaded once the examples are known to be good

    from xlnet_tf.tasks import seeds, sweep, tables
    from xlnet_tf.training import runtime

    derived = {}
    if built and init_checkpoint:
        found = tables.suggested(options.folder("train"), init_checkpoint)
        derived[found.origin] = found.settings
    params = experiment.load(entry.experiment, settings, run, derived)
    set_data(params, options)
    task_class = task_factory.get_task_cls(type(params.task))
    runs = variants(params, entry.experiment, settings, options.sweep, options.sweep_samples, run.given)
    if checks.show_config:
        from run_scripts.common import show_config
        from xlnet_tf.tasks.finetuning import build_task

        task = build_task(params, task_class, model_dir)
        print(show_config.table(params, task, show_config.origins(entry.experiment, settings, run, derived)))
        return
    if checks.dry_run:
        from run_scripts.common import dry_run
        from xlnet_tf.training.tpu_slice import TpuSlice

        replicas = TpuSlice.named(checks.topology).replicas if checks.topology else 0
        planned = sweep.trainings(runs, task_class, model_dir, options.num_seeds, replicas)
        dry_run.check_and_print_all(planned, checks.topology, checks.price_per_hour)
        return
    strategy = runtime.prepare(params.runtime)
    if options.sweep:
        trials = sweep.sweep(runs, task_class, strategy, model_dir, options.num_seeds)
        print(sweep.table(trials))
        sweep.draw_picture(trials, f"{model_dir}/{sweep.PICTURE}")
        print(f"\nwritten to {model_dir}: {sweep.SUMMARY}, {sweep.PICTURE}")
    else:
        print(seeds.table(seeds.finetune_seeds(params, task_class, strategy, model_dir, options.num_seeds)))
        if built and options.num_seeds == 1:
            own_tables.print_outcome(own, built, model_dir, strategy)


if __name__ == "__main__":
    define_flags()
    errors.run(main)

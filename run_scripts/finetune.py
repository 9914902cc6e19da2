r"""Fine-tunes XLNet on examples: those that a builder (`xlnet-tf build`) made for a task.

    python -m run_scripts.finetune --data=records/sst-2 --init_checkpoint=xlnet_cased_L-12_H-768_A-12 \
        --config_file=glue_base --model_dir=runs/sst-2

The examples know which task they are for. Settings come, each over the one before, from the task's defaults,
--config_file (a recipe of run_scripts/recipes/ by its name, or a yaml file), the flags, and
--params_override. The same command, started again, resumes where the run stopped; with --dry_run it checks
everything and trains nothing. MODEL_DIR/best keeps the weights that did best on the dev examples.
"""

import functools
from collections.abc import Sequence

from absl import flags, logging

from run_scripts.common import experiment, training_flags
from xlnet_tf import errors, files, folders, hub, task_registry
from xlnet_tf.flags import Setting, define_of_tasks, given_of_task

SETTINGS = (
    Setting("batch_size", "task.train_data.global_batch_size", "integer", "Examples per step, all devices.",
            1, training_flags.ROWS),
    Setting("dev_batch_size", "task.validation_data.global_batch_size", "integer",
            "Examples per evaluation step, all devices; 0: batch_size / accumulation_steps.", 0,
            training_flags.ROWS),
    Setting("init_checkpoint", "task.init_checkpoint", "string",
            "Weights to begin with: a folder (ours, the original's, Hugging Face's) or hf://OWNER/NAME."),
    Setting("reinit_layers", "task.reinit_layers", "integer",
            "Top layers that begin with random weights instead of init_checkpoint's, and all above them: a "
            "cure for runs on small sets that fail.", 0),
    Setting("seed", "task.seed", "integer",
            "Random seed for the head's weights, dropout and the order of examples.", 0,
            training_flags.SEEDS),
    Setting("epochs", "task.epochs", "float", "Passes over the training data, if train_steps is 0.", 0,
            1_000_000),
    Setting("train_steps", "trainer.train_steps", "integer", "Steps in all; 0: as --epochs says.", 0),
    Setting("warmup_fraction", "task.warmup_fraction", "float",
            "Part of all steps until the peak learning rate, if warmup_steps is 0.", 0, 1),
    Setting("batching", "task.batching", ("length", "packed", "fixed"),
            "length puts examples of like length into a batch and cuts its rows to it; packed puts several "
            "examples of a random batch into a row; fixed takes whole rows. Default: length; on TPUs packed "
            "where that computes fewer positions."),
    Setting("sort_window", "task.sort_window", "integer",
            "Batches within which examples are sorted by length.", 1),
    Setting("checkpoint_interval", "trainer.checkpoint_interval", "integer",
            "Steps between checkpoints; 0: those between evaluations.", 0),
    Setting("eval_interval", "trainer.validation_interval", "integer",
            "Steps between evaluations; 0: an epoch.", 0),
    *training_flags.MODEL,
    *training_flags.TRAINER,
    *training_flags.RUNTIME,
)  # fmt: skip


def define_flags():
    experiment.define_flags(SETTINGS)
    define_of_tasks(task_registry.settings("settings"))
    experiment.define_dry_run_flags()
    flags.DEFINE_string("data", None, "Folder of built examples, with train and dev in it.", required=True)
    flags.DEFINE_string("dev_split", "dev", "Which of its folders to evaluate on; empty: none.")
    flags.DEFINE_float(
        "max_shared",
        0.1,
        "Largest part of the dev examples that may be training examples, too; more is an error.",
        lower_bound=0,
        upper_bound=1,
    )
    flags.DEFINE_integer(
        "num_seeds",
        1,
        "Number of seeds, from --seed on, to run; reports the median.",
        lower_bound=1,
        upper_bound=10_000,
    )
    flags.DEFINE_multi_string(
        "sweep",
        [],
        "Values of a setting to try, as learning_rate:1e-5,2e-5,3e-5, or a range, as 1e-5..5e-5; by its flag "
        "or its path. Of several settings, all combinations; each with --num_seeds. Marks the best on dev.",
    )
    flags.DEFINE_integer(
        "sweep_samples", 0, "Combinations of the --sweep to draw at random; 0: all of them.", 0, 10_000
    )


def check_effect(params, values: flags.FlagValues, swept: Sequence[str] = ()):
    """Warns of flags that other settings leave without effect.

    Args:
        params: the settings.
        values: the flags.
        swept: the settings of the --sweep, by flag or path.

    Raises:
        UserError: a setting of the sweep has none, so that all its runs would be the same.
    """
    steps = params.trainer.train_steps, params.trainer.optimizer_config.warmup_steps
    varied = {name.rpartition(".")[2] for name in swept}
    for flag, other, value in zip(("epochs", "warmup_fraction"), ("train_steps", "warmup_steps"), steps):
        if not value or other in varied:
            continue
        why = experiment.without_effect(flag, other, value)
        if flag in varied:
            raise errors.UserError(f"--sweep={flag} {why}")
        if values[flag].present:
            logging.warning("--%s %s", flag, why)


def main(_: Sequence[str]):
    from etils import epath

    from xlnet_tf.records import example_report
    from xlnet_tf.records.examples import ExampleSet

    values = flags.FLAGS
    folders.claim(values.model_dir, folders.RUN, folders.RUNS, flag="--model_dir")
    entry = task_registry.entry_for_set(ExampleSet.load(f"{values.data}/train"))
    given_of_task(task_registry.settings("settings"), entry.name, values)
    if values.dev_split and not epath.Path(f"{values.data}/{values.dev_split}").exists():
        raise errors.UserError(
            f"{values.data} has {', '.join(path.name for path in files.entries(values.data))}, and no "
            f"{values.dev_split} to evaluate on: build it (--dev of the builder), name another with "
            "--dev_split, or train without evaluations (--dev_split=)"
        )
    model_dir = epath.Path(values.model_dir)
    if values.dev_split and not (model_dir.exists() and files.entries(model_dir)):  # a run that begins
        splits = {"train": "train", "dev": values.dev_split}
        sets = {name: ExampleSet.load(f"{values.data}/{split}") for name, split in splits.items()}
        example_report.check_shared(sets, values.max_shared)
    hub.require(values.init_checkpoint, "init_checkpoint: ")

    from official.core import task_factory  # TensorFlow is loaded once the examples are known to be good

    from xlnet_tf.tasks import seeds, sweep
    from xlnet_tf.training import runtime

    params = experiment.load(entry.experiment, (*SETTINGS, *entry.settings), values)
    dev = f"{values.data}/{values.dev_split}" if values.dev_split else ""
    for config, path in (
        (params.task.train_data, f"{values.data}/train"),
        (params.task.validation_data, dev),
    ):
        if config.input_path and config.input_path != path:
            logging.warning("--data and --dev_split count, not %s of the settings", config.input_path)
        config.input_path = path
    task_class = task_factory.get_task_cls(type(params.task))
    variants = []
    if values.sweep or values.sweep_samples:
        if not values.dev_split:
            raise errors.UserError("--sweep compares runs on dev examples: leave out --dev_split=")
        settings = (*SETTINGS, *entry.settings)
        is_text = functools.partial(experiment.is_text, params, settings)
        axes = [sweep.Axis.parse(text, is_text) for text in values.sweep]
        points = sweep.points(axes, values.sweep_samples, params.task.seed)
        check_effect(params, values, [axis.name for axis in axes])
        variants = [(each, experiment.variant(params, entry.experiment, settings, each)) for each in points]
    else:
        check_effect(params, values)
    if values.dry_run:
        from run_scripts.common import dry_run
        from xlnet_tf.training.tpu_slice import TpuSlice

        replicas = TpuSlice.named(values.topology).replicas if values.topology else 0
        planned = sweep.trainings(
            variants or [({}, params)], task_class, values.model_dir, values.num_seeds, replicas
        )
        dry_run.check_and_print_all(planned, values.topology, values.price_per_hour)
        return
    if values.sweep:
        strategy = runtime.prepare(params.runtime)
        trials = sweep.sweep(variants, task_class, strategy, values.model_dir, values.num_seeds)
        print(sweep.table(trials))
        sweep.draw_picture(trials, f"{values.model_dir}/{sweep.PICTURE}")
        print(f"\nwritten to {values.model_dir}: {sweep.SUMMARY}, {sweep.PICTURE}")
        return
    results = seeds.finetune_seeds(
        params,
        task_class,
        runtime.prepare(params.runtime),
        values.model_dir,
        values.num_seeds,
    )
    print(seeds.table(results))


if __name__ == "__main__":
    define_flags()
    errors.run(main)

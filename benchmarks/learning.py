r"""Compares what our model and Model Garden's learn: both train alike.

    python -m benchmarks.learning --train_data=records/train --dev_data=records/dev \
        --output_dir=runs/learning

All have the same size, dropout, optimizer, schedule and number of steps, see the same batches in the same
order, and have no memory; each begins with its own initial weights, drawn with the same seed. Records are of
one direction, as Model Garden takes directions from the position in the batch: build them with
tfrecord_builders.pretraining --nobidirectional.
Writes report.json and loss.png: the loss of each on all dev records, at intervals. --tpu_form trains ours
once more, in the form that it has on TPUs: positions rotated, and dropout on them alike for all distances.
--recipe=small_fast also trains ours as a recipe of pretraining says: its model, rows, optimizer and number of
steps, evenly spread over the run. The report states the time of these steps as a share of Model Garden's.
"""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm

from benchmarks import harness, peers
from benchmarks.batches import model_garden_batch
from examples.demo.pretraining import unigram_entropy
from run_scripts.common import experiment
from run_scripts.common.training_flags import SEEDS
from xlnet_tf import errors, figures, folders
from xlnet_tf.config import PRESETS, XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.manifest import Manifest

OURS, TPU_FORM, MODEL_GARDEN, RECIPE = "ours", "ours_on_tpus", "model_garden", "recipe"
LABELS = {OURS: "ours", TPU_FORM: "ours, as on TPUs", MODEL_GARDEN: "Model Garden"}
FEATURES = ("input_word_ids", "input_type_ids", "permutation_rank", "target_positions")
Batch = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """The settings of both trainings; each field is a flag."""

    steps: int = option("updates", 1500, least=1)
    eval_interval: int = option("updates between two evaluations", 150, least=1)
    batch_size: int = option("rows of a step", 16, least=1)
    learning_rate: float = option("at its peak; it decays linearly to 0", 5e-4, least=0)
    warmup_steps: int = option("updates until the peak", 100, least=0)
    dropout: float = option("rate of all dropouts", 0.1, least=0, most=1)
    seed: int = option(
        "random seed for initial weights, dropout and record order", 0, least=0, most=SEEDS - 1
    )


class Learner:
    """A model in training.

    Args:
        model: its variables created.
        losses_of: (features, training) -> loss of each target [B, P].
        form: a batch of the reader's -> the model's features.
        optimizer: `build` not yet called.
    """

    def __init__(self, model, losses_of: Callable, form: Callable[[Batch], Batch], optimizer):
        import tensorflow as tf

        variables = model.trainable_variables
        optimizer.build(variables)

        @tf.function(autograph=False)
        def train(features, weights):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(losses_of(features, True) * weights) / tf.reduce_sum(weights)
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients([pair for pair in zip(gradients, variables) if pair[0] is not None])
            return loss

        @tf.function(autograph=False)
        def total(features, weights):
            return tf.reduce_sum(losses_of(features, False) * weights)

        self._train, self._total, self._form = train, total, form

    def train(self, batch: Batch) -> float:
        """Trains on a batch; returns the seconds of the step alone."""
        features, weights = self._form(batch), target_weights(batch)
        began = time.perf_counter()
        self._train(features, weights).numpy()
        return time.perf_counter() - began

    def evaluate(self, batches: Iterable[Batch]) -> float:
        """Returns the mean loss of the targets of all batches, in nats."""
        losses = [float(self._total(self._form(batch), target_weights(batch))) for batch in batches]
        return sum(losses) / float(sum(target_weights(batch).sum() for batch in batches))


def target_weights(batch: Batch) -> np.ndarray:
    """Returns float32 [B, P]: 1 for a target, 0 for an empty slot."""
    return (batch["target_positions"] >= 0).astype(np.float32)


def make_ours(config: XLNetConfig, plan: TrainingSettings, hardware: str | None = None) -> Learner:
    from xlnet_tf.layers.kernels import device

    model = harness.our_model(config, plan.dropout, seed=plan.seed)
    assumed = functools.partial(device.assume, hardware)
    return _our_learner(model, _optimizer(plan, config.n_layer), assumed)


def make_by_recipe(recipe: str, train: Manifest, seed: int) -> tuple[Learner, int, int]:
    """Prepares our model for training by a recipe of pretraining, without memory.

    Only the recipe's model, rows, optimizer and number of steps count. Returns the model, the rows of its
    steps, and their number.
    """
    import tf_keras
    from official.core import exp_factory

    from xlnet_tf.tasks.pretraining import task as pretraining
    from xlnet_tf.training.config import override
    from xlnet_tf.training.optimizer import build_optimizer

    params = exp_factory.get_exp_config(pretraining.EXPERIMENT)
    override(params, experiment.settings_file(recipe, "--recipe"), "--recipe")
    params.override({"task": {"model": {"memory_len": 0}, "train_data": {"input_path": str(train.folder)}}})
    task, steps = pretraining.PretrainingTask(params.task), params.trainer.train_steps
    tf_keras.utils.set_random_seed(seed)
    optimizer = build_optimizer(params.trainer.optimizer_config, steps, task.n_layer)
    return _our_learner(task.build_model(), optimizer), params.task.train_data.global_batch_size, steps


def _our_learner(model, optimizer, context: Callable = contextlib.nullcontext) -> Learner:
    from xlnet_tf.models.pretrainer import target_losses

    def losses(features, training):
        with context():
            return target_losses(model(features, training=training))

    return Learner(model, losses, lambda batch: {name: batch[name] for name in FEATURES}, optimizer)


def _optimizer(plan: TrainingSettings, n_layer: int):
    from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer

    settings = OptimizerConfig(learning_rate=plan.learning_rate, warmup_steps=plan.warmup_steps)
    return build_optimizer(settings, plan.steps, n_layer)


def make_model_garden(config: XLNetConfig, plan: TrainingSettings, batch: Batch) -> Learner:
    """Prepares Model Garden's model for training; reading any batch creates its variables."""
    import tf_keras

    tf_keras.utils.set_random_seed(plan.seed)
    model = peers.model_garden_pretrainer(config, model_garden_batch(batch), plan.dropout, bi_data=False)
    losses = functools.partial(peers.model_garden_losses, model)
    return Learner(model, losses, model_garden_batch, _optimizer(plan, config.n_layer))


def train_both(
    config: XLNetConfig,
    train: Manifest,
    dev: Manifest,
    plan: TrainingSettings,
    tpu_form: bool = False,
    recipe: str | None = None,
) -> dict[str, Any]:
    """Trains our model and Model Garden's, and ours in other ways on request.

    Returns:
        config, plan; unigram_entropy of the dev targets, in nats; curve: at each evaluation step and, by
        implementation, the dev loss; seconds_per_step by implementation, the median; difference: our last dev
        loss less Model Garden's; with a recipe, recipe: its figures, time_share in Model Garden's time.
    """
    from xlnet_tf.records.reader import pretraining_dataset

    _check(train, dev)
    config = dataclasses.replace(config, n_token=train.tokenizer["vocab_size"])
    dev_batches = list(pretraining_dataset(dev, plan.batch_size, repeat=False).as_numpy_iterator())
    learners = {
        OURS: make_ours(config, plan),
        **({TPU_FORM: make_ours(config, plan, "tpu")} if tpu_form else {}),
        MODEL_GARDEN: make_model_garden(config, plan, dev_batches[0]),
    }
    if recipe:
        learners[RECIPE], rows, recipe_steps = make_by_recipe(recipe, train, plan.seed)
        recipe_batches = pretraining_dataset(train, rows, seed=plan.seed).as_numpy_iterator()
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    curve = []

    def evaluate(step: int) -> None:
        curve.append(
            {"step": step} | {name: learner.evaluate(dev_batches) for name, learner in learners.items()}
        )
        tqdm.tqdm.write("  ".join(f"{name} {value:.4g}" for name, value in curve[-1].items()))

    evaluate(0)
    early_steps = [plan.eval_interval // part for part in (8, 4, 2)]  # where the loss falls fastest
    batches = pretraining_dataset(train, plan.batch_size, seed=plan.seed).as_numpy_iterator()
    with ProgressBar(itertools.islice(batches, plan.steps), total=plan.steps) as bar:
        for step, batch in enumerate(bar, start=1):
            for name, learner in learners.items():
                if name != RECIPE:
                    seconds[name].append(learner.train(batch))
            while recipe and len(seconds[RECIPE]) * plan.steps < recipe_steps * step:
                seconds[RECIPE].append(learners[RECIPE].train(next(recipe_batches)))
            if step % plan.eval_interval == 0 or step == plan.steps or step in early_steps:
                evaluate(step)
    report = _report(config, plan, dev, curve, seconds)
    if recipe:
        share = recipe_steps * report["seconds_per_step"][RECIPE]
        share /= plan.steps * report["seconds_per_step"][MODEL_GARDEN]
        facts = {"name": recipe, "steps": recipe_steps, "batch_size": rows, "time_share": share}
        report["recipe"] = facts | {"loss": curve[-1][RECIPE]}
    return report


def _report(config: XLNetConfig, plan: TrainingSettings, dev: Manifest, curve, seconds) -> dict[str, Any]:
    return {
        "config": config.to_dict(),
        "plan": dataclasses.asdict(plan),
        "unigram_entropy": unigram_entropy(dev),
        "curve": curve,
        "seconds_per_step": {name: statistics.median(values) for name, values in seconds.items()},
        "difference": curve[-1][OURS] - curve[-1][MODEL_GARDEN],
    }


def _check(train: Manifest, dev: Manifest) -> None:
    """Raises UserError unless both models can read both sets alike."""
    dev.check_tokenizer(train.tokenizer["sha256"])
    for manifest in (train, dev):
        if list(manifest.directions) != ["forward"]:
            raise UserError(
                f"{manifest.folder} has the directions {', '.join(manifest.directions)}: expected forward "
                "alone, as Model Garden takes directions from the position in the batch; build the records "
                "with --nobidirectional"
            )


def tables(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables of a report of `train_both`: losses by step, and the times."""
    config, plan = report["config"], report["plan"]
    title = (
        f"Dev loss, nats per target: {config['n_layer']} layers of {config['d_model']}, {config['n_token']} "
        f"pieces, batch {plan['batch_size']}; unigram entropy {report['unigram_entropy']:.3f}"
    )
    last = report["curve"][-1]
    rows = [
        {
            "": name,
            "s a step": seconds,
            "last dev loss": last[name],
            "over Model Garden's": last[name] - last[MODEL_GARDEN],
        }
        for name, seconds in report["seconds_per_step"].items()
    ]
    figures = {title: report["curve"], "In all (goal: at most 0 over Model Garden's)": rows}
    if "recipe" in report:
        recipe = {"": report["recipe"]["name"], **report["recipe"]}
        figures["By recipe (goal: at most 0.25 of Model Garden's time)"] = [recipe]
    return figures


def draw(report: Mapping[str, Any], path: pathlib.Path) -> None:
    figure = figures.new(8, 4.5)
    axes = figure.subplots()
    steps = [point["step"] for point in report["curve"]]
    labels = LABELS | {RECIPE: report.get("recipe", {}).get("name")}
    for name in (name for name in labels if name in report["curve"][0]):
        axes.plot(steps, [point[name] for point in report["curve"]], "o", ms=4, label=labels[name])
    axes.axhline(report["unigram_entropy"], color="k", lw=1, ls=":", label="unigram entropy")
    title = "The same records" if RECIPE in report["curve"][0] else "The same records, steps and settings"
    axes.set(xlabel="step of Model Garden's model", ylabel="dev loss (nats per target)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figures.save(figure, path, dpi=120)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """What is trained, on which records."""

    train_data: str = option("folder of records to train on")
    dev_data: str = option("folder of records to evaluate on")
    output_dir: str = option("folder for report.json and loss.png")
    preset: str = option("size of the model", "tiny", choices=list(PRESETS))
    tpu_form: bool = option("also train our model in the form that it has on TPUs", False)
    recipe: str | None = option(
        "also train our model as this recipe says (model, rows, optimizer, steps), without memory", None
    )


def main(_: Sequence[str]) -> None:
    options = from_flags(LearningOptions)
    folders.claim(options.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
    report = train_both(
        XLNetConfig.preset(options.preset),
        Manifest.load(options.train_data),
        Manifest.load(options.dev_data),
        from_flags(TrainingSettings),
        options.tpu_form,
        options.recipe,
    )
    folder = pathlib.Path(options.output_dir)
    harness.publish(tables(report), str(folder / "report.json"))
    draw(report, folder / "loss.png")
    print(folder / "loss.png")


if __name__ == "__main__":
    define_flags(LearningOptions)
    define_flags(TrainingSettings)
    errors.run(main)

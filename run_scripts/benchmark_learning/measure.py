"""Trains our model and Model Garden's XLNetPretrainer alike, and compares what they learn."""

import dataclasses
import functools
import itertools
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tqdm

from run_scripts.benchmark import peers, timing
from run_scripts.benchmark.batches import model_garden_batch
from run_scripts.demo import __main__ as demo
from xlnet_tf import files
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.manifest import Manifest

OURS, TPU_FORM, MODEL_GARDEN = "ours", "ours_on_tpus", "model_garden"
LABELS = {OURS: "ours", TPU_FORM: "ours, as on TPUs", MODEL_GARDEN: "Model Garden"}
FEATURES = ("input_word_ids", "input_type_ids", "permutation_rank", "target_positions")
Batch = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How both are trained; each field is a flag."""

    steps: int = option("updates", 1500, least=1)
    eval_interval: int = option("updates between two evaluations", 150, least=1)
    batch_size: int = option("rows of a step", 16, least=1)
    learning_rate: float = option("at its peak; it decays linearly to 0", 5e-4, least=0)
    warmup_steps: int = option("updates until the peak", 100, least=0)
    dropout: float = option("rate of all dropouts", 0.1, least=0, most=1)
    seed: int = option(
        "random seed for initial weights, dropout and record order", 0, least=0, most=(1 << 32) - 1
    )


class Learner:
    """A model in training.

    Args:
        model: its variables created.
        losses_of: features, training -> loss of each target [B, P].
        form: a batch of the reader's -> the model's features.
    """

    def __init__(
        self, model, losses_of: Callable, form: Callable[[Batch], Batch], plan: TrainingSettings, n_layer: int
    ):
        import tensorflow as tf

        from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer

        settings = OptimizerConfig(learning_rate=plan.learning_rate, warmup_steps=plan.warmup_steps)
        optimizer = build_optimizer(settings, plan.steps, n_layer)
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


def make_ours(config: XLNetConfig, plan: TrainingSettings, kind: str | None = None) -> Learner:
    """Makes our model ready for training.

    Args:
        kind: of layers.kernels.device, whose form it gets; None: this machine's.
    """
    from xlnet_tf.layers.kernels import device
    from xlnet_tf.models.pretrainer import target_losses

    model = timing.our_model(config, plan.dropout, seed=plan.seed)

    def losses(features, training):
        with device.assume(kind):
            return target_losses(model(features, training=training))

    return Learner(
        model,
        losses,
        lambda batch: {name: batch[name] for name in FEATURES},
        plan,
        config.n_layer,
    )


def make_model_garden(config: XLNetConfig, plan: TrainingSettings, batch: Batch) -> Learner:
    """Makes Model Garden's model ready for training.

    Args:
        batch: any; it creates its variables by reading one.
    """
    import tf_keras

    tf_keras.utils.set_random_seed(plan.seed)
    model = peers.model_garden_pretrainer(config, model_garden_batch(batch), plan.dropout, bi_data=False)
    losses = functools.partial(peers.model_garden_losses, model)
    return Learner(model, losses, model_garden_batch, plan, config.n_layer)


def train_both(
    config: XLNetConfig, train: Manifest, dev: Manifest, plan: TrainingSettings, tpu_form: bool = False
) -> dict[str, Any]:
    """Trains both.

    Args:
        config: the architecture; its vocabulary becomes the records'.

    Returns:
        config, plan; unigram_entropy of the dev targets, in nats; curve: at each evaluation step and, by
        implementation, the dev loss; seconds_per_step by implementation, the median; difference: our last dev
        loss less Model Garden's.

    Raises:
        UserError: records that do not fit together or that both cannot read alike.
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
    seconds = {name: [] for name in learners}
    curve = []

    def evaluate(step: int) -> None:
        curve.append({"step": step} | {name: one.evaluate(dev_batches) for name, one in learners.items()})
        tqdm.tqdm.write("  ".join(f"{name} {value:.4g}" for name, value in curve[-1].items()))

    evaluate(0)
    early_steps = [plan.eval_interval // part for part in (8, 4, 2)]  # where the loss falls fastest
    batches = pretraining_dataset(train, plan.batch_size, seed=plan.seed).as_numpy_iterator()
    with ProgressBar(itertools.islice(batches, plan.steps), total=plan.steps) as bar:
        for step, batch in enumerate(bar, start=1):
            for name, one in learners.items():
                seconds[name].append(one.train(batch))
            if step % plan.eval_interval == 0 or step == plan.steps or step in early_steps:
                evaluate(step)
    return {
        "config": config.to_dict(),
        "plan": dataclasses.asdict(plan),
        "unigram_entropy": demo.unigram_entropy(dev),
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


def table(report: Mapping[str, Any]) -> str:
    """Returns a report for a person."""
    config, plan = report["config"], report["plan"]
    seconds = ", ".join(f"{name} {value:.3f} s" for name, value in report["seconds_per_step"].items())
    names = list(report["seconds_per_step"])
    return "\n".join(
        [
            timing.heading(report["machine"]),
            f"{config['n_layer']} layers of {config['d_model']}, {config['n_token']} pieces, "
            f"batch {plan['batch_size']}; unigram entropy {report['unigram_entropy']:.3f}",
            "",
            "".join([f"{'step':>6}", *(f"{name:>14}" for name in names), "   dev loss, nats per target"]),
            *(
                "".join([f"{point['step']:>6}", *(f"{point[name]:>14.4f}" for name in names)])
                for point in report["curve"]
            ),
            "",
            f"Ours less Model Garden's: {report['difference']:.4f} (goal: at most 0)",
            f"A step: {seconds}",
        ]
    )


def draw(report: Mapping[str, Any], path: pathlib.Path) -> None:
    """Draws all curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    steps = [point["step"] for point in report["curve"]]
    for name in (name for name in LABELS if name in report["curve"][0]):
        axes.plot(steps, [point[name] for point in report["curve"]], "o", ms=4, label=LABELS[name])
    axes.axhline(report["unigram_entropy"], color="k", lw=1, ls=":", label="unigram entropy")
    axes.set(xlabel="step", ylabel="dev loss (nats per target)", title="The same records, steps and settings")
    axes.grid(alpha=0.3)
    axes.legend()
    files.save_figure(figure, path, dpi=120)

"""Measures the memory that training takes: each model in a process of its own, next to the peers.

    python -m benchmarks.memory --peer_python=PYTHON

  pretraining   steps of benchmarks.step: ours, Model Garden's and Hugging Face's, --batch_size rows.
  fine-tuning   steps of a classifier on full rows, as benchmarks.finetune takes them: ours, and the peers in
                PyTorch, --finetuning_rows rows. BERT and the others have random weights.

recompute is gradient checkpointing, which Hugging Face's XLNet does not have. A figure is the largest
resident memory of the process after some steps, libraries included; "libraries" is what importing them takes.
Other work on the machine does not change it.
"""

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import batches, finetune, harness, peers, step
from xlnet_tf import errors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.progress_bar import ProgressBar

STEPS = 3
CLASSES = 2
LIBRARIES = "libraries"
PRETRAINING = {
    step.OURS: (LIBRARIES, "graph", "graph bfloat16", "graph recompute", "graph recompute cheap"),
    step.MODEL_GARDEN: ("graph",),
    step.HUGGING_FACE: ("fused", "bfloat16"),
}
_PEERS = ("hf dynamic", *peers.OTHERS)
FINETUNING = {
    step.OURS: ("graph", "graph bfloat16", "graph recompute", "graph recompute cheap"),
    step.HUGGING_FACE: tuple(
        f"{name}{kind}"
        for name in _PEERS
        for kind in ("", " bfloat16", " recompute")
        if (name, kind) != ("hf dynamic", " recompute")
    ),
}


def pretraining_steps(
    options: "MemoryOptions", who: str, mode: str
) -> contextlib.AbstractContextManager[dict[str, Callable[[], Any]]]:
    """Returns a context with the pretraining step of an implementation, by its mode."""
    batch = batches.make_batch(options.config, options.batch_size, options.seq_len, options.targets)
    if who == step.HUGGING_FACE:
        return step.hugging_face_steps(options.config, batch, 0.1, [mode], options.peer_python)
    make = step.our_steps if who == step.OURS else step.model_garden_steps
    return contextlib.nullcontext(make(options.config, batch, 0.1, [mode]))


@contextlib.contextmanager
def finetuning_steps(options: "MemoryOptions", who: str, mode: str) -> Iterator[dict[str, Callable[[], Any]]]:
    """Yields the training step of a classifier, by its mode."""
    config, size = options.config, [options.finetuning_rows, options.seq_len]
    ids = np.random.default_rng(0).integers(10, config.n_token, size, dtype=np.int32)
    if who == step.OURS:
        yield {mode: our_classifier_step(config, ids, mode)}
        return
    with peers.hugging_face_like(
        options.peer_python, finetune.PEER_PROGRAM, lambda: harness.our_model(config)
    ) as peer:
        rows = {"rows": ids.tolist() * STEPS, "labels": [0] * (STEPS * len(ids))}
        peer.ask({**rows, "num_labels": CLASSES, "batch_size": len(ids), "dropout": 0.1})
        yield {mode: lambda: peer.ask({"mode": mode, "steps": 1, **peers.torch_adamw()})}


def our_classifier_step(config: XLNetConfig, ids: np.ndarray, mode: str) -> step.TrainingStep:
    """Returns a training step of our classifier on ids [B, T]."""
    import tensorflow as tf

    from xlnet_tf.models.classifier import XLNetClassifier
    from xlnet_tf.models.encoder import XLNetEncoder
    from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer
    from xlnet_tf.training.runtime import number_type

    with number_type("bfloat16" if "bfloat16" in mode else "float32"):
        body = XLNetEncoder(config, dropout=0.1, attention_dropout=0.1, recompute=step.recomputed(mode))
        model = XLNetClassifier(body, CLASSES)
        model.build()
    optimizer = build_optimizer(OptimizerConfig(), step.TRAIN_STEPS, config.n_layer)
    optimizer.build(model.trainable_variables)
    labels = tf.zeros([len(ids)], tf.int32)

    def loss(features):
        logits = tf.cast(model(features, training=True), tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    features = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": np.zeros_like(ids)}
    return step.TrainingStep(loss, model, optimizer, features, xla=False)


def largest_memory(options: "MemoryOptions", steps_of: Callable, who: str, mode: str) -> int:
    """Takes steps in this process or a child of it; returns the largest resident memory, in bytes."""
    if mode == LIBRARIES:
        import tensorflow  # noqa: F401

        import xlnet_tf.models.pretrainer  # noqa: F401

        return _peak(["self"])
    with steps_of(options, who, mode) as steps:
        for _ in range(STEPS):
            steps[mode]()
        if who != step.HUGGING_FACE:
            return _peak(["self"])
        tasks = pathlib.Path("/proc/self/task").glob("*/children")
        return _peak([pid for children in tasks for pid in children.read_text().split()])


def _peak(pids: Sequence[str]) -> int:
    # Not ru_maxrss: a process begins with that of the one that started it.
    stats = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return 1024 * max(int(found[1]) for each in stats if (found := re.search(r"VmHWM:\s+(\d+) kB", each)))


def measure(options: "MemoryOptions") -> dict[str, Any]:
    """Returns two tables: for each implementation and mode GB, and its share of Hugging Face's XLNet's."""
    size = f"{options.config.n_layer} layers of {options.config.d_model}, {options.seq_len} tokens"
    plans = [
        (f"Pretraining, {size}, {options.batch_size} rows", pretraining_steps, PRETRAINING, "fused"),
        (f"Fine-tuning, {size}, {options.finetuning_rows} rows", finetuning_steps, FINETUNING, "hf dynamic"),
    ]
    figures: dict[str, Any] = {}
    with ProgressBar(total=sum(len(modes) for plan in plans for modes in plan[2].values())) as bar:
        for title, steps_of, modes_of, compared in plans:
            largest: dict[str, float] = {}
            for who, mode in ((who, mode) for who, modes in modes_of.items() for mode in modes):
                bar.set_postfix_str(f"{who} {mode}")
                if who != step.HUGGING_FACE or options.peer_python:
                    spawn = multiprocessing.get_context("spawn")
                    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
                        result = pool.submit(largest_memory, options, steps_of, who, mode).result()
                    largest[f"{who} {mode}"] = result / 1e9
                bar.update()
            other = largest.get(f"{step.HUGGING_FACE} {compared}")
            figures[title] = [
                {"": name, "GB": value, "of Hugging Face's": other and value / other}
                for name, value in largest.items()
            ]
    return figures


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryOptions(harness.SegmentOptions, harness.PeerOptions):
    """The sizes of the batches."""

    batch_size: int = option("rows of a pretraining step; even", 2, least=2)
    finetuning_rows: int = option("rows of a fine-tuning step", 8, least=2)


def main(_: Sequence[str]) -> None:
    options = from_flags(MemoryOptions)
    harness.publish(measure(options), options.output)


if __name__ == "__main__":
    define_flags(MemoryOptions)
    errors.run(main)

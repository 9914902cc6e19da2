"""Measures how long training stops for a checkpoint."""

import collections
import functools
import pathlib
import statistics
import tempfile
import time
from typing import Any

from benchmarks.harness import WARM_UP, interleave

STEPS = 3  # after each checkpoint; the write ends before they do


def measure_checkpoint(step, repeats: int) -> dict[str, Any]:
    """Measures steps without a checkpoint, after one that training waits for, and while one is written."""
    import tensorflow as tf

    from xlnet_tf.training.saving import Checkpoints

    number, pauses = tf.Variable(0, dtype=tf.int64), collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = {
            name: Checkpoints(
                tf.train.Checkpoint(**step.state), f"{folder}/{name}", step=number, hold=tf.Variable(0),
                interval=1, max_to_keep=1, initialize=lambda: None, background=name == "background",
            )
            for name in ("waiting", "background")
        }  # fmt: skip

        def run(name: str):
            number.assign_add(1)
            begun = time.perf_counter()
            if name in checkpoints:
                checkpoints[name].save()
            pauses[name].append(time.perf_counter() - begun)
            for _ in range(STEPS):
                step()
            if name in checkpoints:
                checkpoints[name].wait()

        names = ("none", *checkpoints)
        timings = interleave({name: functools.partial(run, name) for name in names}, repeats, "checkpoint")
        size = sum(path.stat().st_size for path in pathlib.Path(folder, "waiting").glob("ckpt-*"))
    return {
        f"Checkpoint of {size / 1e9:.2f} GB and {STEPS} steps": [
            {"": name, "s to the first step": statistics.median(pauses[name][WARM_UP:]),
             "s in all": timings[name].wall}
            for name in names
        ]
    }  # fmt: skip

"""What the benchmark measures of checkpoints: how long training stops for one."""

import collections
import functools
import pathlib
import statistics
import tempfile
import time
from typing import Any

from run_scripts.benchmark import batches
from run_scripts.benchmark.step import our_steps
from run_scripts.benchmark.timing import WARM_UP, interleave
from xlnet_tf.config import XLNetConfig

STEPS = 3  # after each checkpoint; the write ends before they do


def measure_checkpoint(
    config: XLNetConfig, batch_size: int, seq_len: int, num_predict: int, repeats: int
) -> dict[str, Any]:
    """Measures steps without a checkpoint, after one that training waits for, and while one is written.

    Returns:
        bytes of a checkpoint; steps; for none, waiting and background: pause, seconds until the first step
        can begin, and seconds, until all steps and the write are done.
    """
    import tensorflow as tf

    from xlnet_tf.training.saving import Checkpoints

    batch = batches.make_batch(config, batch_size, seq_len, num_predict)
    step = our_steps(config, batch, 0.1, ["graph"])["graph"]
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
    return {"bytes": size, "steps": STEPS} | {
        name: {"pause": statistics.median(pauses[name][WARM_UP:]), "seconds": timings[name].wall}
        for name in names
    }

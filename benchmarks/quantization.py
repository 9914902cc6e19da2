"""Measures what smaller weights cost: the metric of fine-tuned runs in each form in which they can be served.

    xlnet-tf finetune --data=records/sst-2 --num_seeds=3 --model_dir=runs/sst-2 ...
    python -m benchmarks.quantization --model_dir=runs/sst-2 --data=records/sst-2/dev \
        --calibration_data=records/sst-2/train

Runs with several seeds are folders seed-0, seed-1, ... Each is scored in float32 and in the forms that
`xlnet-tf export` writes: as a SavedModel with bfloat16 and int8 weights; for OpenVINO with float32, bfloat16
and int8 weights, for which the ranges of activations are found on --calibration_data. The table has the
metric of each run, and the points lost: their mean, and the most.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tqdm
from etils import epath

from benchmarks import harness
from benchmarks.serving import BFLOAT16, FLOAT32, INT8, OPENVINO, TENSORFLOW, compile_graph
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option

FORMS = (
    (TENSORFLOW, BFLOAT16),
    (TENSORFLOW, INT8),
    *((OPENVINO, name) for name in (FLOAT32, BFLOAT16, INT8)),
)


def runs_of(model_dir: str) -> list[str]:
    """Returns the runs of all seeds in a folder, or the one that it is."""
    from xlnet_tf.checkpoints.model_card import is_run

    seeds = sorted(str(path) for path in epath.Path(model_dir).glob("seed-*"))
    if not (seeds or is_run(model_dir)):
        raise UserError(f"{model_dir} is no fine-tuned run: give --model_dir of `xlnet-tf finetune`")
    return seeds or [model_dir]


def measure(model_dir: str, data: str, calibration_data: str) -> dict[str, Any]:
    """Scores the runs of a folder in all forms; returns a table."""
    from xlnet_tf.serving.openvino import quantization
    from xlnet_tf.serving.sources import open_served
    from xlnet_tf.tasks.export_checks import compare_weights

    scores: dict[str, list[float]] = {}
    points: dict[str, list[float]] = {}
    runs = runs_of(model_dir)
    for run in tqdm.tqdm(runs):
        module = open_served(run).load()
        for runtime, weights in FORMS:
            graph = None
            if runtime == OPENVINO:
                batches = quantization.calibration_batches(module, calibration_data)
                graph = compile_graph(module, weights, batches)
            found = compare_weights(run, data, weights, graph=graph)
            name = f"{runtime} {weights}"
            scores.setdefault(f"{TENSORFLOW} {FLOAT32}", []).append(found.full)
            scores.setdefault(name, []).append(found.small)
            points.setdefault(name, []).append(found.points)
    full = f"{TENSORFLOW} {FLOAT32}"
    scores[full] = scores[full][:: len(FORMS)]
    table = [_row(name, values, points.get(name, ())) for name, values in scores.items()]
    return {f"{found.metric} on {data}, {len(runs)} runs": table}


def _row(name: str, scores: Sequence[float], points: Sequence[float]) -> Mapping[str, Any]:
    row: dict[str, Any] = {"": name, "mean": statistics.mean(scores)}
    row |= {f"run {number}": score for number, score in enumerate(scores)}
    if points:
        row |= {"points lost": statistics.mean(points), "most": max(points)}
    return row


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizationOptions:
    """Which runs are scored, and on what."""

    model_dir: str = option("a fine-tuned run, or a folder of runs with several seeds")
    data: str = option("examples with answers to score on, such as records/sst-2/dev")
    calibration_data: str = option("other examples, to find the ranges of activations on")
    output: str | None = option("json file for the figures", None)


def main(_: Sequence[str]) -> None:
    options = from_flags(QuantizationOptions)
    harness.publish(measure(options.model_dir, options.data, options.calibration_data), options.output)


if __name__ == "__main__":
    define_flags(QuantizationOptions)
    errors.run(main)

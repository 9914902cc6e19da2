r"""Times a saved training step: of tpu_compile --save_hlo, where there is no TensorFlow.

    xlnet-tf tpu-compile --preset=large --dtype=bfloat16 --batch_per_core=8 --memory_len=0 \
        --hardware=gpu --save_hlo=step.hlo
    python -m benchmarks.hlo --hlo=step.hlo --platform=gpu --peak_tflops=989

It needs JAX, for a GPU with its plugin, and this repository on the machine; step.hlo.json goes with the file.
Weights and inputs are synthetic; what a step writes to weights and optimizer state, the next one reads.
Model flops are those of the matrix products that the model asks for: what is computed again does not count.
"""

import dataclasses
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tqdm

from xlnet_tf import errors, files
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.tpu.runner import PLATFORMS, Runner, load

JAX_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu"}
WARM_UP = 2


def measure(path: str, platform: str, steps: int, peak_flops: float | None = None) -> dict[str, Any]:
    """Runs a saved step.

    Returns:
        what `runner.save` wrote; platform, steps; seconds: the median of a step; fastest; compile_seconds;
        temporaries in bytes; tokens_per_second; flops_per_second; utilisation: of peak_flops, if given.
    """
    hlo, sizes = load(path)
    runner = Runner(hlo, platform)
    for _ in range(WARM_UP):
        runner.step()
    seconds = [runner.step() for _ in tqdm.trange(steps, desc="step")]
    median = statistics.median(seconds)
    report = sizes | {
        "platform": platform,
        "steps": steps,
        "seconds": median,
        "fastest": min(seconds),
        "compile_seconds": runner.compile_seconds,
        "temporaries": runner.temporaries,
        "tokens_per_second": sizes["batch_size"] * sizes["seq_len"] / median,
        "flops_per_second": sizes["flops"] / median,
    }
    if peak_flops:
        report["utilisation"] = report["flops_per_second"] / peak_flops
    return report


def table(report: Mapping[str, Any]) -> str:
    rows = {
        "batch": f"{report['batch_size']} x {report['seq_len']} tokens, for {report['hardware']}",
        "run on": f"{report['platform']}, compiled in {report['compile_seconds']:.1f} s",
        "a step": f"{report['seconds']:.4f} s, the fastest of {report['steps']} {report['fastest']:.4f} s",
        "tokens": f"{report['tokens_per_second']:,.0f} per second",
        "model flops": f"{report['flops_per_second'] / 1e12:.3f} TFLOP/s",
        "temporaries": f"{report['temporaries'] / 1e9:.3f} GB",
    }
    if "utilisation" in report:
        rows["utilisation"] = f"{report['utilisation']:.1%} of the device's peak"
    return "\n".join(f"{name:<13}{value}" for name, value in rows.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class HloOptions:
    """What runs where, and how often."""

    hlo: str = option("file of tpu_compile --save_hlo")
    platform: str = option("what to run it on", "gpu", choices=PLATFORMS)
    steps: int = option("steps to time; figures are their medians", 20, least=1)
    peak_tflops: float | None = option(
        "peak rate of the device in the number type, for its utilisation", None, least=0
    )
    output: str | None = option("json file for the figures", None)


def main(_: Sequence[str]) -> None:
    options = from_flags(HloOptions)
    os.environ["JAX_PLATFORMS"] = JAX_PLATFORMS[options.platform]
    peak = options.peak_tflops and options.peak_tflops * 1e12
    report = measure(options.hlo, options.platform, options.steps, peak)
    print(table(report))
    if options.output:
        files.write_json(options.output, report)


if __name__ == "__main__":
    define_flags(HloOptions)
    errors.run(main)

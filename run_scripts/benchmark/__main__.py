"""Measures training on this machine: every figure comes from this one run.

    python -m run_scripts.benchmark --peer_python=PYTHON --output=runs/benchmark.json

  gemm     the rate of matrix products: the ceiling of what a training step can reach.
  builder  pretraining records from text, one process, next to SentencePiece's encode alone on the same text.
  workers  the same from the text repeated to --workers_mb, by one process and by one on each core: the rate,
           and a worker's memory.
  reader   examples per second, and the bytes of one that travel from the host to the device.
  step     a pretraining step (forward, backward, AdamW; no memory) on the same inputs, each with what part of
           the gemm rate it reaches:
             ours           as a TensorFlow graph and compiled by XLA; in bfloat16 where the processor
                            computes with it; with activations computed again in the backward pass.
             model_garden   Model Garden's XLNetPretrainer, as a graph and by XLA.
             hugging_face   XLNetLMHeadModel in PyTorch, with our weights, in a process of --peer_python, a
                            Python that has torch and transformers; left out without.
           Ratios are of the best modes, next to the project's goals. Temporaries are what XLA plans for
           intermediate results.

  checkpoint  steps of ours, and how long they stop for a checkpoint: written first, or while they run.

What is compared runs in turn, once per repetition, so that a disturbance hits all alike; figures are medians.
--what=builder,reader measures some of them. The text is the demo's, or --text with --tokenizer.
Serving and generation have benchmarks of their own: benchmark_serving, benchmark_generation.
"""

import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from run_scripts.benchmark import checkpoints, flops, step, timing
from run_scripts.benchmark import data as benchmark_data
from run_scripts.benchmark.step import ALL_PEER_MODES, GOALS, MODES
from run_scripts.benchmark.timing import DEMO_TEXT, DEMO_TOKENIZER, existing
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.records.spans import default_num_predict

PARTS = ("builder", "workers", "reader", "gemm", "step", "checkpoint")


def table(report: Mapping[str, Any]) -> str:
    """Returns a report for a person."""
    lines = [timing.heading(report["machine"])]

    def rows(title: str, values: Mapping[str, str]) -> None:
        lines.extend(["", title, *(f"  {name:<24} {value}" for name, value in values.items())])

    if "builder" in report:
        part = report["builder"]
        speeds = {
            name: f"{part[name]['bytes_per_second'] / 1e6:8.2f} MB/s of text, "
            f"{part[name]['bytes_per_cpu_second'] / 1e6:.2f} MB per CPU second"
            for name in ("builder", "sentencepiece")
        }
        shares = ", ".join(f"{stage} {share:.0%}" for stage, share in part["stage_shares"].items())
        rows(
            f"Builder, one process, {part['text_bytes'] / 1e6:.1f} MB",
            speeds
            | {
                "time / sentencepiece": f"{part['ratio']:8.2f}",
                "stages": shares,
                "original, one core": f"{benchmark_data.ORIGINAL_BYTES_PER_SECOND / 1e6:8.2f} MB/s of text "
                "on the machine of the project's goals",
            },
        )
    if "workers" in report:
        part = report["workers"]
        rows(
            f"Builder, {part['text_bytes'] / 1e6:.0f} MB",
            {
                f"{number} worker{'s' * (number > 1)}": f"{rate / 1e6:8.2f} MB/s of text"
                for number, rate in part["bytes_per_second"].items()
            }
            | {
                "a worker's peak memory": f"{part['worker_peak_bytes'] / 1e6:8.0f} MB",
                "CPU next to the workers'": f"{part['coordinator_share']:8.1%}",
            },
        )
    if "reader" in report:
        part = report["reader"]
        rows(
            f"Reader, {part['rows']} rows of {part['seq_len']} tokens and {part['num_predict']} targets",
            {
                "examples/s": f"{part['examples_per_second']:8,.0f}",
                "bytes per example": f"{part['bytes_per_example']:8,.0f} to the device, "
                f"{part['record_bytes']:,} on disk",
            },
        )
    for dtype, part in report.get("gemm", {}).items():
        rates = {f"{size} x {size}": f"{rate / 1e9:8.1f} GFLOP/s" for size, rate in part["by_size"].items()}
        rows(f"Matrix products, {dtype}", rates)
    if "step" in report:
        part = report["step"]
        config = part["config"]
        times = {
            f"{who}, {mode}": f"{seconds:8.3f} s, {part['gemm_fraction'][who][mode]:.0%} of the gemm rate"
            for who, modes in part["seconds"].items()
            for mode, seconds in modes.items()
        }
        planned = {
            f"temporaries, {mode}": f"{size / 1e9:8.3f} GB" for mode, size in part["temporaries"].items()
        }
        reached = {
            name: f"{value:8.2f} (goal: at most {GOALS[name]:.2f})" for name, value in part["ratios"].items()
        }
        rows(
            f"Pretraining step, {config['n_layer']} layers of {config['d_model']}, "
            f"batch {part['batch_size']}, {part['seq_len']} tokens, {part['num_predict']} targets: "
            f"{part['flops'] / 1e9:,.1f} GFLOP",
            times | planned | reached,
        )
    if "checkpoint" in report:
        part = report["checkpoint"]
        rows(
            f"Checkpoint of {part['bytes'] / 1e9:.2f} GB and {part['steps']} steps",
            {
                name: f"{part[name]['pause']:8.3f} s to the first step, {part[name]['seconds']:.3f} s in all"
                for name in ("none", "waiting", "background")
            },
        )
    return "\n".join(lines)


def define_flags() -> None:
    """Defines the script's flags."""
    timing.define_flags(repeats=5)
    flags.DEFINE_list("what", list(PARTS), f"what to measure, of {', '.join(PARTS)}")
    flags.DEFINE_list(
        "modes",
        None,
        f"our modes of the step, of {', '.join(MODES)}. Default: all that the processor computes with",
    )
    flags.DEFINE_list(
        "peer_modes",
        list(ALL_PEER_MODES),
        "the peers' modes of the step: graph and xla of Model Garden, others of Hugging Face. Base in all "
        "of them and of ours takes more than 24 GB of memory",
    )
    flags.DEFINE_string("text", None, f"a corpus file, plain or .gz. Default: the demo's, {DEMO_TEXT}")
    flags.DEFINE_string("tokenizer", None, f"its SentencePiece model. Default: the demo's, {DEMO_TOKENIZER}")
    flags.DEFINE_float("text_mb", 4.0, "MB to take of the text", lower_bound=0.001)
    flags.DEFINE_float("workers_mb", 100.0, "MB of text for the workers", lower_bound=0.001)
    flags.DEFINE_integer("batch_size", 2, "rows of the step's batch; even", lower_bound=2)
    flags.DEFINE_integer("seq_len", 512, "tokens of a segment", lower_bound=7)
    flags.DEFINE_integer("num_predict", None, "targets of a segment. Default: seq_len / 6", lower_bound=1)


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    if unknown := sorted(set(values.what) - set(PARTS)):
        raise UserError(f"--what has {', '.join(unknown)}: expected some of {', '.join(PARTS)}")
    sizes = {
        "seq_len": values.seq_len,
        "num_predict": values.num_predict or default_num_predict(values.seq_len),
    }
    where = timing.machine()
    report = {"machine": where}
    if {"builder", "workers", "reader"} & set(values.what):
        text = existing(values.text, DEMO_TEXT, "text")
        tokenizer = existing(values.tokenizer, DEMO_TOKENIZER, "tokenizer")
        with tempfile.TemporaryDirectory() as folder:
            text = benchmark_data.cut_text(text, values.text_mb, pathlib.Path(folder))
            if "builder" in values.what:
                report["builder"] = benchmark_data.measure_builder(text, tokenizer, values.repeats, **sizes)
            if "workers" in values.what:
                workers = (1, max(2, where["cores"]))
                report["workers"] = benchmark_data.measure_workers(
                    text, tokenizer, values.workers_mb, workers, **sizes
                )
            if "reader" in values.what:
                report["reader"] = benchmark_data.measure_reader(text, tokenizer, values.repeats, **sizes)
    if {"gemm", "step"} & set(values.what):
        report["gemm"] = {
            dtype: flops.measure_gemm(values.repeats, dtype) for dtype in ("float32", "bfloat16")
        }
    if "step" in values.what:
        report["step"] = step.measure_step(
            timing.config_of_flags(),
            values.batch_size,
            repeats=values.repeats,
            gemm_rates={dtype: part["flops_per_second"] for dtype, part in report["gemm"].items()},
            modes=values.modes or [mode for mode in MODES if where["bfloat16"] or "bfloat16" not in mode],
            peer_modes=values.peer_modes,
            peer_python=values.peer_python,
            **sizes,
        )
    if "checkpoint" in values.what:
        report["checkpoint"] = checkpoints.measure_checkpoint(
            timing.config_of_flags(), values.batch_size, repeats=values.repeats, **sizes
        )
    timing.write(report, table(report), values.output)


if __name__ == "__main__":
    define_flags()
    errors.run(main)

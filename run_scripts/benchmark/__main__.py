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

  profile  where the time of our step goes: by kind of operation, and by part of the model.
  checkpoint  steps of ours, and how long they stop for a checkpoint: written first, or while they run.

What is compared runs in turn, once per repetition, so that a disturbance hits all alike; figures are medians.
--what=builder,reader measures some of them. The text is the demo's, or --text with --tokenizer.
Serving and generation have benchmarks of their own: benchmark_serving, benchmark_generation.
"""

import pathlib
import tempfile
from collections.abc import Sequence

from absl import flags

from run_scripts.benchmark import checkpoints, engines, flops, profile, step, timing
from run_scripts.benchmark import data as benchmark_data
from run_scripts.benchmark.report import table
from run_scripts.benchmark.step import ALL_PEER_MODES, MODES
from run_scripts.benchmark.timing import DEMO_TEXT, DEMO_TOKENIZER, existing
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.records.spans import default_num_predict

PARTS = ("builder", "workers", "engines", "reader", "gemm", "step", "profile", "checkpoint")


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    known_of = {"what": PARTS, "engines": engines.ENGINES, "modes": MODES, "peer_modes": ALL_PEER_MODES}
    for flag, known in known_of.items():
        if unknown := sorted(set(values[flag].value or ()) - set(known)):
            raise UserError(f"--{flag} has {', '.join(unknown)}: expected some of {', '.join(known)}")
    if wrong := [number for number in values.workers if not number.isdecimal() or not int(number)]:
        raise UserError(f"--workers has {', '.join(wrong)}: expected numbers of processes, such as 1,2,4")
    sizes = {
        "seq_len": values.seq_len,
        "num_predict": values.num_predict or default_num_predict(values.seq_len),
    }
    where = timing.machine()
    report = {"machine": where}
    if {"builder", "workers", "engines", "reader"} & set(values.what):
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
            if "engines" in values.what:
                report["engines"] = engines.measure_engines(
                    text,
                    tokenizer,
                    timing.config_of_flags(),
                    engines=values.engines,
                    workers=[*map(int, values.workers)],
                    rows=values.rows,
                    **sizes,
                )
            if "reader" in values.what:
                report["reader"] = benchmark_data.measure_reader(text, tokenizer, values.repeats, **sizes)
    if {"gemm", "step"} & set(values.what):
        report["gemm"] = {
            dtype: flops.measure_gemm(values.repeats, dtype) for dtype in ("float32", "bfloat16")
        }
    modes = values.modes or [mode for mode in MODES if where["bfloat16"] or "bfloat16" not in mode]
    if "step" in values.what:
        report["step"] = step.measure_step(
            timing.config_of_flags(),
            values.batch_size,
            repeats=values.repeats,
            gemm_rates={dtype: part["flops_per_second"] for dtype, part in report["gemm"].items()},
            modes=modes,
            peer_modes=values.peer_modes,
            peer_python=values.peer_python,
            **sizes,
        )
    if "profile" in values.what:
        report["profile"] = profile.measure_profile(
            timing.config_of_flags(),
            values.batch_size,
            repeats=values.repeats,
            modes=[mode for mode in modes if "xla" not in mode],
            **sizes,
        )
    if "checkpoint" in values.what:
        report["checkpoint"] = checkpoints.measure_checkpoint(
            timing.config_of_flags(), values.batch_size, repeats=values.repeats, **sizes
        )
    timing.write(report, table(report), values.output)


if __name__ == "__main__":
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
    flags.DEFINE_list("engines", ["local"], f"what to spread jobs with, of {', '.join(engines.ENGINES)}")
    flags.DEFINE_list("workers", ["1", "2", "4"], "numbers of processes for the engines")
    flags.DEFINE_integer("rows", 100, "texts to embed on the engines", lower_bound=1)
    flags.DEFINE_integer("batch_size", 2, "rows of the step's batch; even", lower_bound=2)
    flags.DEFINE_integer("seq_len", 512, "tokens of a segment", lower_bound=7)
    flags.DEFINE_integer("num_predict", None, "targets of a segment. Default: seq_len / 6", lower_bound=1)
    errors.run(main)

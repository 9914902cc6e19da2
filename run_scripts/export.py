r"""Exports a trained model for servers: raw text in, answers out.

    python -m run_scripts.export --model_dir=runs/sst-2 --output_dir=served/sst-2
    python -m run_scripts.export --model_dir=runs/sst-2 --output_dir=served/fast --runtime=openvino

A fine-tuned run is served as its task; pretrained weights (a run's, the original's, Hugging Face's) as a
language model: embed, score, fill_mask, generate; or, with --head, as what a checkpoint was fine-tuned for.
A SavedModel needs nothing of this project: TensorFlow Serving, or tensorflow and tensorflow_text, load it.
For OpenVINO, this project answers texts without TensorFlow, and OpenVINO Model Server takes tokens.
"""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from run_scripts.common import experiment, exports
from xlnet_tf import errors, folders, hub, task_registry
from xlnet_tf import flags as options_lib
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.task_registry import LANGUAGE_MODEL


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is exported, how small, and what is measured before."""

    model_dir: str = option("Folder or name of a fine-tuned run or of pretrained weights.", group="model")
    output_dir: str = option("Folder of the served model, called by its name.", group="output")
    head: str | None = None  # a flag whose choices follow from the tasks
    version: int | None = option("Number of the version. Default: the next one.", None, least=1)
    checkpoint: str = option(
        "Checkpoint of a run: best, last, or as ckpt-100; empty: best if kept, else last.", "", group="model"
    )
    runtime: str = option(
        "tensorflow: a SavedModel; openvino: faster on CPUs, and answers without TensorFlow.",
        "tensorflow",
        choices=("tensorflow", "openvino"),
        group="answers",
    )
    weights: str = option(
        "float32; bfloat16, half the size, fast where the processor computes with it; int8, a quarter of the "
        "size, computes in float32, with openvino in integers; int4, for language models with openvino.",
        "float32",
        choices=("float32", "bfloat16", "int8", "int4"),
        group="answers",
    )
    calibration_data: str | None = option(
        "Folder of examples like the texts to come, such as a dev set: finds the ranges of activations for "
        "--runtime=openvino --weights=int8.",
        None,
    )
    seq_len: int | None = option(
        "Most tokens of a text. Default: the run's; 512.", None, least=5, group="answers"
    )
    buckets: Sequence[str] | None = option(
        "Lengths to pad to, so that short texts cost less. Default: 32, 64, 128, ...", None
    )
    bucket_data: str | None = option(
        "Folder of examples as long as the texts to come: chooses --buckets for them.", None
    )
    warmup_batches: Sequence[str] = option(
        "Batch sizes that the server warms up with, and fills batches up to.", ("1", "8")
    )
    calibrate: str | None = option(
        "Folder of a run's dev examples: divides logits by the temperature that makes their probabilities "
        "likeliest. Changes no label.",
        None,
    )
    check_data: str | None = option(
        "Examples with answers, to compare smaller weights with float32 on.", None
    )
    max_loss: float = option("Points of the task's metric that smaller weights may cost there.", 0.5, least=0)


def define_flags():
    options_lib.define_flags(ExportOptions, exports.WritingOptions)
    flags.DEFINE_enum(
        "head",
        None,
        [LANGUAGE_MODEL, *task_registry.names()],
        "The head to serve weights with that are not a fine-tuned run. Default: what they were trained for.",
    )
    options_lib.define_of_tasks(task_registry.settings("export_settings"))


def check_flags(options: ExportOptions, head_options: Mapping[str, Any]):
    """Raises UserError for flags that exclude each other, including those of heads."""
    from xlnet_tf.checkpoints.model_card import is_run

    if is_run(hub.locate(options.model_dir).folder):
        if of_heads := [f"--{name}" for name in (*["head"] * bool(options.head), *head_options)]:
            raise UserError(
                f"{', '.join(of_heads)}: for weights that are not a fine-tuned run, which has them"
            )
    elif options.checkpoint or options.check_data or options.calibrate:
        raise UserError("--checkpoint, --check_data and --calibrate are for fine-tuned runs")
    if head_options:
        if options.head:
            task = task_registry.canonical(options.head)
        else:
            from xlnet_tf.serving.tensorflow_sources import task_of_weights

            task = task_of_weights(options.model_dir)
        options_lib.check_task(task_registry.settings("export_settings"), head_options, task)
    if options.buckets is not None and options.bucket_data:
        raise UserError(
            "--buckets and --bucket_data are both given: leave out --buckets to have the lengths chosen for "
            "the data, or --bucket_data to use your own"
        )
    if options.check_data and options.weights == "float32":
        raise UserError("--check_data compares smaller weights with float32: give --weights")


def parse_flags(values: flags.FlagValues) -> tuple[ExportOptions, dict[str, Any]]:
    """Returns the values of the flags, those of heads separately; for mains."""
    head_options = options_lib.given(task_registry.settings("export_settings"), values)
    return options_lib.from_flags(ExportOptions, values, head=values.head), head_options


def main(_: Sequence[str]):
    options, head_options = parse_flags(flags.FLAGS)
    folders.claim(options.output_dir, folders.EXPORT, flag="--output_dir")
    hub.require(options.model_dir)
    warmup_batches = numbers("warmup_batches", options.warmup_batches)
    options = experiment.split_checkpoint(options)
    module_options = {"seq_len": options.seq_len} if options.seq_len else {}
    if options.buckets is not None:
        module_options["buckets"] = numbers("buckets", options.buckets)
    module_options |= options_lib.given_of(exports.WritingOptions)
    check_flags(options, head_options)
    exports.check_runtime(options)
    exports.check_writing(options, module_options)
    exports.check_demands(options.model_dir)
    from xlnet_tf.serving import config_files
    from xlnet_tf.serving.export import export

    served = served_module(options, module_options | head_options)
    local = f"xlnet-tf serve --model={shlex.quote(options.output_dir)}"
    if options.runtime == "openvino":
        path = exports.export_openvino(options, served)
        print(exports.describe_openvino(path))
        print(f"\nTo answer texts, without TensorFlow: {local}\n\nFor token ids, OpenVINO Model Server:\n")
        print(config_files.openvino_docker_command(options.output_dir))
        return
    path = export(served, options.output_dir, version=options.version, warmup_batches=warmup_batches)
    print(exports.describe(path))
    print(f"\nTo serve it:\n\n{config_files.docker_command(options.output_dir)}")
    print(f"\nWithout a container: {local}")


def served_module(options: ExportOptions, module_options: dict[str, Any]):
    """Returns the model to export, with measured buckets and temperature if asked for."""
    from xlnet_tf.serving.answers.options import buckets_for
    from xlnet_tf.serving.sources import open_served

    if options.bucket_data:
        seq_len = options.seq_len or open_served(options.model_dir, head=options.head).options["seq_len"]
        buckets = module_options["buckets"] = buckets_for(options.bucket_data, seq_len)
        print(f"buckets for texts as in {options.bucket_data}: {', '.join(map(str, buckets))}")
    in_tensorflow = options.runtime == "tensorflow"
    kind = options.weights if in_tensorflow else "float32"
    weights = {"weights": kind, "checkpoint": options.checkpoint}
    if options.check_data and in_tensorflow:
        exports.check_weights(options.model_dir, options.check_data, max_loss=options.max_loss, **weights)
    if options.calibrate:
        from xlnet_tf.tasks import export_checks

        temperature = export_checks.fit_temperature(options.model_dir, options.calibrate, **weights)
        module_options["temperature"] = temperature
        print(f"temperature: {', '.join(f'{value:.4f}' for value in temperature)}")
    source = open_served(
        options.model_dir, checkpoint=options.checkpoint, head=options.head, **module_options
    )
    served = source.load(kind)
    exports.warn_of_left_out(module_options.get("buckets", ()), served.buckets)
    return served


def numbers(flag: str, values: Sequence[str]) -> list[int]:
    try:
        return [int(value) for value in values]
    except ValueError:
        raise UserError(f"--{flag} is {','.join(values)!r}; expected numbers, such as 1,8") from None


if __name__ == "__main__":
    define_flags()
    errors.run(main)

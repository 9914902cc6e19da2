r"""Exports a trained model for TensorFlow Serving: raw text in, answers out.

    python -m run_scripts.export --model_dir=runs/sst-2 --output_dir=served/sst-2

A fine-tuned run is served as its task; pretrained weights (a run's, the original's, Hugging Face's) as a
language model: embed, score, fill_mask, generate; or, with --head, as what a checkpoint was fine-tuned for.
What is written needs nothing of this project: TensorFlow Serving, or tensorflow and tensorflow_text, load it.
"""

import shlex
from collections.abc import Sequence
from typing import Any

from absl import flags, logging
from etils import epath

from run_scripts.common import experiment
from xlnet_tf import errors, folders, hub, task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_of_tasks, given_of_task
from xlnet_tf.task_registry import LANGUAGE_MODEL


def define_flags():
    flags.DEFINE_string(
        "model_dir", None, "Folder or name of a fine-tuned run or of pretrained weights.", required=True
    )
    flags.DEFINE_string("output_dir", None, "Folder of the served model, called by its name.", required=True)
    flags.DEFINE_enum(
        "head",
        None,
        [LANGUAGE_MODEL, *task_registry.names()],
        "The head to serve weights with that are not a fine-tuned run. Default: what they were trained for.",
    )
    define_of_tasks(task_registry.settings("export_settings"))
    flags.DEFINE_integer("version", None, "Number of the version. Default: the next one.", lower_bound=1)
    flags.DEFINE_string(
        "checkpoint", "", "Checkpoint of a run: best, last, or as ckpt-100; empty: best if kept, else last."
    )
    flags.DEFINE_enum(
        "weights",
        "float32",
        ["float32", "bfloat16", "int8"],
        "float32; bfloat16, half the size, fast where the processor computes with it; int8, a quarter of the "
        "size, computes in float32.",
    )
    flags.DEFINE_integer("seq_len", None, "Most tokens of a text. Default: the run's; 512.", lower_bound=5)
    flags.DEFINE_list(
        "buckets", None, "Lengths to pad to, so that short texts cost less. Default: 32, 64, 128, ..."
    )
    flags.DEFINE_string(
        "bucket_data", None, "Folder of examples as long as the texts to come: chooses --buckets for them."
    )
    flags.DEFINE_list(
        "warmup_batches", ["1", "8"], "Batch sizes that the server warms up with, and fills batches up to."
    )
    flags.DEFINE_string(
        "calibrate",
        None,
        "Folder of a run's dev examples: divides logits by the temperature that makes their probabilities "
        "likeliest. Changes no label.",
    )
    flags.DEFINE_string(
        "check_data", None, "Examples with answers, to compare smaller weights with float32 on."
    )
    flags.DEFINE_float("max_loss", 0.5, "Points of the task's metric that smaller weights may cost there.", 0)


def check_flags(values: flags.FlagValues):
    """Raises UserError for flags that do not go together."""
    from xlnet_tf.checkpoints.model_card import is_run

    if is_run(hub.locate(values.model_dir).folder):
        flags_of_heads = ("head", *task_registry.settings("export_settings"))
        if given := [f"--{name}" for name in flags_of_heads if values[name].present]:
            raise UserError(f"{', '.join(given)}: for weights that are not a fine-tuned run, which has them")
    elif values.checkpoint or values.check_data or values.calibrate:
        raise UserError("--checkpoint, --check_data and --calibrate are for fine-tuned runs")
    head_options(values)
    if values.buckets is not None and values.bucket_data:
        raise UserError(
            "--buckets and --bucket_data are both given: leave out --buckets to have the lengths chosen for "
            "the data, or --bucket_data to use your own"
        )
    if values.check_data and values.weights == "float32":
        raise UserError("--check_data compares smaller weights with float32: give --weights")


def check_demands(model_dir: str):
    """Raises UserError if a run cannot do what its settings demand, such as an alert's precision."""
    from xlnet_tf.checkpoints.model_card import is_run
    from xlnet_tf.tasks.prediction import Run
    from xlnet_tf.tasks.scoring import UNREACHED

    folder = hub.locate(model_dir).folder
    if not is_run(folder):
        return
    task = Run.open(folder, "").task
    if text := task.shortfall(task.best_metrics()):
        raise UserError(
            f"{model_dir}: {text}{UNREACHED}. Fine-tune with a lower demand, or longer, with another "
            "--model_dir"
        )


def head_options(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the options that are given for --head.

    Raises:
        UserError: one of them is for other heads.
    """
    of_tasks = task_registry.settings("export_settings")
    if values.head:
        return given_of_task(of_tasks, task_registry.canonical(values.head), values)
    if not any(values[name].present for name in of_tasks):
        return {}
    from xlnet_tf.serving.models import task_of_weights

    return given_of_task(of_tasks, task_of_weights(values.model_dir), values)


def check_weights(values: flags.FlagValues):
    """Compares smaller weights with float32 on --check_data, and says what they cost.

    Raises:
        UserError: they cost more than --max_loss.
    """
    from xlnet_tf.serving import models

    found = models.compare_weights(values.model_dir, values.check_data, values.weights, values.checkpoint)
    print(
        f"{found.metric} on {values.check_data}: {found.full:.4f} with float32, {found.small:.4f} with "
        f"{values.weights}: {found.points:.2f} points lost"
    )
    if not found.points <= values.max_loss:
        raise UserError(
            f"{values.weights} costs {found.points:.2f} points of {found.metric}, more than --max_loss="
            f"{values.max_loss}: export float32, or allow more"
        )


def main(_: Sequence[str]):
    values = flags.FLAGS
    folders.claim(values.output_dir, folders.EXPORT, flag="--output_dir")
    hub.require(values.model_dir)
    from xlnet_tf.serving import config_files, models
    from xlnet_tf.serving.export import export
    from xlnet_tf.serving.graph import module

    options = {}
    if values.seq_len:
        options["seq_len"] = values.seq_len
    if values.buckets is not None:
        options["buckets"] = numbers("buckets", values.buckets)
    warmup_batches = numbers("warmup_batches", values.warmup_batches)
    experiment.split_checkpoint(values)
    check_flags(values)
    check_demands(values.model_dir)
    if values.bucket_data:
        seq_len = values.seq_len or models.seq_len_of(values.model_dir)
        options["buckets"] = module.buckets_for(values.bucket_data, seq_len)
        print(f"buckets for texts as in {values.bucket_data}: {', '.join(map(str, options['buckets']))}")
    if values.check_data:
        check_weights(values)
    if values.calibrate:
        options["temperature"] = models.fit_temperature(
            values.model_dir, values.calibrate, values.weights, values.checkpoint
        )
        print(f"temperature: {', '.join(f'{value:.4f}' for value in options['temperature'])}")
    served = models.module_of(
        values.model_dir,
        checkpoint=values.checkpoint,
        head=values.head,
        weights=values.weights,
        **options,
        **head_options(values),
    )
    warn_of_left_out(options.get("buckets", ()), served.buckets)
    path = export(served, values.output_dir, version=values.version, warmup_batches=warmup_batches)
    print(describe(path))
    print(f"\nTo serve it:\n\n{config_files.docker_command(values.output_dir)}")
    print(f"\nWithout a container: xlnet-tf serve --model={shlex.quote(values.output_dir)}")


def warn_of_left_out(buckets: Sequence[int], served: Sequence[int]):
    """Warns of buckets that are asked for and are not served."""
    if short := sorted({*buckets} - {*served}):
        logging.warning(
            "buckets of %s tokens are left out: the model looks at more tokens for an answer (start_top, "
            "end_top), so the shortest bucket is %d",
            ", ".join(map(str, short)),
            served[0],
        )


def describe(path: str) -> str:
    """Returns what a version answers to, and its size, as a table."""
    from tensorflow.core.protobuf import saved_model_pb2

    folder = epath.Path(path)
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    files = [folder / "saved_model.pb", *(folder / "variables").iterdir()]
    lines = [f"{path}: {sum(file.stat().length for file in files) / 1e6:,.0f} MB"]
    for name, signature in sorted(model.meta_graphs[0].signature_def.items()):
        if not name.startswith("__"):
            inputs, outputs = (
                ", ".join(sorted(tensors)) for tensors in (signature.inputs, signature.outputs)
            )
            lines.append(f"  {name:<16} {inputs} -> {outputs}")
    return "\n".join(lines)


def numbers(flag: str, values: Sequence[str]) -> list[int]:
    """Reads a flag's list of numbers."""
    try:
        return [int(value) for value in values]
    except ValueError:
        raise UserError(f"--{flag} is {','.join(values)!r}; expected numbers, such as 1,8") from None


if __name__ == "__main__":
    define_flags()
    errors.run(main)

"""Checks before an export, and a description of the result."""

import dataclasses
from collections.abc import Iterable, Sequence

from absl import logging
from etils import epath

from xlnet_tf import hub, task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """What a served language model writes."""

    forbid: Sequence[str] = option(
        "Piece that a served language model never writes, such as '<eop>'.", (), repeated=True
    )
    repetition_penalty: float = option(
        "Multiplies the log-probability of each piece that a text has already, in generate and search of a "
        "served language model; 1: none.",
        1.0,
        least=1,
        most=10,
    )


def check_writing(options, given: Iterable[str]):
    """Raises UserError for given WritingOptions that have no effect; `options` are those of the command."""
    from xlnet_tf.checkpoints.model_card import is_run
    from xlnet_tf.serving.tensorflow_sources import task_of_weights

    if not (
        names := ", ".join(
            f"--{field.name}" for field in dataclasses.fields(WritingOptions) if field.name in given
        )
    ):
        return
    located = hub.locate(options.model_dir).folder
    task = "fine-tuned" if is_run(located) else options.head or task_of_weights(options.model_dir)
    if task != task_registry.LANGUAGE_MODEL:
        raise UserError(f"{names}: for language models, which write texts; {options.model_dir} is for {task}")


def check_demands(model_dir: str):
    """Raises UserError if a run misses a demand of its settings, such as an alert's precision."""
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


def check_weights(model_dir: str, data: str, weights: str, checkpoint: str, max_loss: float, graph=None):
    """Compares smaller weights with float32 on examples, and prints the loss.

    More than max_loss points (hundredths) of the task's metric are a UserError. `graph`: see compare_weights.
    """
    from xlnet_tf.tasks import export_checks

    loss = export_checks.compare_weights(model_dir, data, weights, checkpoint, graph)
    print(
        f"{loss.metric} on {data}: {loss.full:.4f} with float32, {loss.small:.4f} with {weights}: "
        f"{loss.points:.2f} points lost"
    )
    if not loss.points <= max_loss:
        raise UserError(
            f"{weights} costs {loss.points:.2f} points of {loss.metric}, more than --max_loss={max_loss}: "
            "export float32, or allow more"
        )


def warn_of_left_out(buckets: Sequence[int], served: Sequence[int]):
    if short := sorted({*buckets} - {*served}):
        logging.warning(
            "buckets of %s tokens are left out: the model looks at more tokens for an answer (start_top, "
            "end_top), so the shortest bucket is %d",
            ", ".join(map(str, short)),
            served[0],
        )


def check_runtime(options):
    """Raises UserError for options that do not go with --runtime; `options` are those of the command."""
    if options.runtime == "tensorflow":
        if options.calibration_data or options.weights == "int4":
            raise UserError("--calibration_data and --weights=int4 are for --runtime=openvino")
        return
    from xlnet_tf.serving.openvino import quantization
    from xlnet_tf.serving.openvino.compiled import import_openvino

    import_openvino()
    if options.weights in ("int8", "int4"):
        quantization.import_nncf()
    if options.calibration_data and options.weights != "int8":
        raise UserError("--calibration_data finds the ranges of 8-bit activations: give --weights=int8, too")
    if tuple(options.warmup_batches) != ("1", "8"):
        raise UserError("--warmup_batches is for TensorFlow Serving: leave it out with --runtime=openvino")


def export_openvino(options, served) -> str:
    """Exports a model for OpenVINO with what was asked for; returns the version's folder."""
    from xlnet_tf.model_folders import OPENVINO_MODEL
    from xlnet_tf.serving.export import export_openvino
    from xlnet_tf.serving.openvino.compiled import CompiledGraph
    from xlnet_tf.task_registry import LANGUAGE_MODEL

    is_language_model, weights = served.card.task == LANGUAGE_MODEL, options.weights
    if not is_language_model and not task_registry.find(served.card.task).answering:
        raise UserError(
            f"the task {served.card.task} has no answering, which reads texts without TensorFlow: leave out "
            "--runtime=openvino"
        )
    if weights == "int4" and not is_language_model:
        raise UserError("--weights=int4 is for language models: give int8 with --calibration_data")
    if is_language_model and options.calibration_data:
        raise UserError("--calibration_data: a language model's int8 is of weights alone, which needs none")
    if weights == "int8" and not (is_language_model or options.calibration_data):
        raise UserError(
            "--weights=int8 with --runtime=openvino computes with 8-bit activations: give "
            "--calibration_data, a folder of examples like the texts to come, such as a dev set"
        )

    def check(folder: str):
        if options.check_data:
            graph = CompiledGraph(f"{folder}/{OPENVINO_MODEL}", weights)
            check_weights(
                options.model_dir, options.check_data, weights, options.checkpoint, options.max_loss, graph
            )

    return export_openvino(
        served,
        options.output_dir,
        weights,
        version=options.version,
        calibration_data=options.calibration_data,
        check=check,
    )


def describe_openvino(path: str) -> str:
    """Returns a table of a version's graphs and their sizes."""
    folder = epath.Path(path)
    graphs = [*folder.glob("*.xml"), *sorted(folder.glob("graphs/*.xml"))]
    sizes = [graph.with_suffix(".bin").stat().length / 1e6 for graph in graphs]
    lines = [f"  {graph.stem:<16} {size:,.1f} MB" for graph, size in zip(graphs, sizes)]
    return "\n".join([f"{path}: {sum(sizes):,.0f} MB", *lines])


def describe(path: str) -> str:
    """Returns a table of a version's signatures and its size."""
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

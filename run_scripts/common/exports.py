"""Checks before an export, and a description of the result."""

from collections.abc import Sequence

from absl import logging
from etils import epath

from xlnet_tf import hub
from xlnet_tf.errors import UserError


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


def check_weights(model_dir: str, data: str, weights: str, checkpoint: str, max_loss: float):
    """Compares smaller weights with float32 on examples, and prints the loss.

    More than max_loss points (hundredths) of the task's metric are a UserError.
    """
    from xlnet_tf.tasks import export_checks

    loss = export_checks.compare_weights(model_dir, data, weights, checkpoint)
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
    """Warns of requested buckets that are not served."""
    if short := sorted({*buckets} - {*served}):
        logging.warning(
            "buckets of %s tokens are left out: the model looks at more tokens for an answer (start_top, "
            "end_top), so the shortest bucket is %d",
            ", ".join(map(str, short)),
            served[0],
        )


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

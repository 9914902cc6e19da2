"""Adapts `compile`'s losses and metrics to heads that return logits; tf_keras expects probabilities."""

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from xlnet_tf.errors import UserError

# Descriptions of a head's outputs, for messages.
CLASSES, LABELS = "logits of classes that exclude each other", "a logit for each label"
SCORES, VALUES = "scores", "numbers"
Outputs = str | Mapping[str, str] | None

_LOSSES = {
    CLASSES: "SparseCategoricalCrossentropy(from_logits=True)",
    LABELS: "BinaryCrossentropy(from_logits=True)",
    SCORES: "CategoricalCrossentropy(from_logits=True)",
    VALUES: "MeanSquaredError()",
}
_PROBABILITIES = {
    CLASSES: "np.equal(y, 1), tf.nn.softmax(model.predict(x))[..., 1]",  # of one class, as these metrics are
    LABELS: "y, tf.sigmoid(model.predict(x))",
    SCORES: "y, tf.nn.softmax(model.predict(x))",
}
_FUNCTIONS = {
    "binary_accuracy": "BinaryAccuracy",
    "binary_crossentropy": "BinaryCrossentropy",
    "binary_focal_crossentropy": "BinaryFocalCrossentropy",
    "categorical_accuracy": "CategoricalAccuracy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "categorical_focal_crossentropy": "CategoricalFocalCrossentropy",
    "kl_divergence": "KLDivergence",
    "poisson": "Poisson",
    "sparse_categorical_accuracy": "SparseCategoricalAccuracy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
}
_OF_LABELS = {"AUC", "BinaryAccuracy", "BinaryCrossentropy", "BinaryFocalCrossentropy", "BinaryIoU"}
_OF_CLASSES = {
    *("CategoricalAccuracy", "CategoricalCrossentropy", "CategoricalFocalCrossentropy"),
    *("SparseCategoricalAccuracy", "SparseCategoricalCrossentropy"),
}
_UNFIT = {CLASSES: _OF_LABELS, LABELS: _OF_CLASSES, SCORES: set()}
_OF_NUMBERS = {  # names without case and "_"
    *("cosinesimilarity", "huber", "logcosh", "meanabsoluteerror", "meanabsolutepercentageerror"),
    *("meansquarederror", "meansquaredlogarithmicerror", "rootmeansquarederror"),
}
_WITHOUT_LOGITS = {  # losses and metrics without a form for logits
    *("Accuracy", "FalseNegatives", "FalsePositives", "IoU", "KLDivergence", "MeanIoU", "Poisson"),
    *("Precision", "PrecisionAtRecall", "Recall", "RecallAtPrecision", "SensitivityAtSpecificity"),
    *("SpecificityAtSensitivity", "TrueNegatives", "TruePositives"),
}


def for_logits(argument: str, values: Any, outputs: Outputs) -> Any:
    """Returns losses or metrics that treat a head's outputs as logits; the user's own objects stay unchanged.

    `argument` is compile's, for messages; `outputs` is what they are, by name if there are several.
    """
    if not values or outputs is None:
        return values
    is_by_name = isinstance(values, Mapping) and "class_name" not in values
    if isinstance(outputs, Mapping):
        by_name = values if is_by_name else dict.fromkeys(outputs, values)
        return {
            name: for_logits(f"{argument}[{name!r}]", value, outputs.get(name))
            for name, value in by_name.items()
        }
    if is_by_name:
        return {name: for_logits(argument, value, outputs) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [for_logits(argument, value, outputs) for value in values]
    return _fitting(argument, values, outputs)


def _fitting(argument: str, value: Any, outputs: str) -> Any:
    is_loss = argument.startswith("loss")
    library = tf_keras.losses if is_loss else tf_keras.metrics
    short = value.lower() if isinstance(value, str) and not is_loss else ""
    if short in ("accuracy", "acc"):  # of the likeliest class, where there are several
        return library.BinaryAccuracy(value, threshold=0.0) if outputs == LABELS else value
    if short in ("crossentropy", "ce"):  # of classes, it depends on the answers which one is meant
        value = "BinaryCrossentropy" if outputs == LABELS else library.SparseCategoricalCrossentropy()
    built = _as_object(library, value)
    class_name = type(built).__name__
    if built is None or (outputs == VALUES and not class_name.endswith("Crossentropy")):
        return value
    changes = _changes(built)
    if class_name not in _UNFIT.get(outputs, class_name) and changes is not None:
        if not changes:
            return value
        if isinstance(value, str) or hasattr(value, "__name__"):
            return type(built)(**changes)
        options = ", ".join(f"{name}={setting}" for name, setting in changes.items())
        line = f"{_path(library)}.{class_name}({options})"
    elif is_loss or class_name.endswith("Crossentropy"):
        line = f"{_path(library)}.{_LOSSES[outputs]}"
    elif class_name.endswith(("Accuracy", "IoU")):
        own = "BinaryAccuracy(threshold=0.0)" if outputs == LABELS else "SparseCategoricalAccuracy()"
        line = f"{_path(library)}.{own}"
    else:
        line = f"metric.update_state({_PROBABILITIES[outputs]}) after fit"
    raise UserError(
        f"{argument} has {class_name}, which does not fit what this model answers, {outputs}: write {line}."
    )


def check_labels(argument: str, values: Any, outputs: Outputs, labels: Any, logits: Any) -> None:
    """Raises ValueError, as `fit` wraps others, if a loss or metric would compare logits with class numbers.

    A teacher's logits, which have the same shape, are fine. For arguments see `for_logits`.
    """
    if isinstance(outputs, Mapping):
        for name, kind in outputs.items():
            parts = [
                part.get(name) if isinstance(part, Mapping) else part for part in (values, labels, logits)
            ]
            check_labels(f"{argument}[{name!r}]", parts[0], kind, *parts[1:])
    elif isinstance(values, list | tuple):
        for value in values:
            check_labels(argument, value, outputs, labels, logits)
    elif outputs in (CLASSES, LABELS) and tf.is_tensor(labels) and tf.is_tensor(logits):
        library = tf_keras.losses if argument.startswith("loss") else tf_keras.metrics
        value = library.get(values) if isinstance(values, str) else values
        name = getattr(value, "__name__", type(value).__name__)
        is_logits = labels.dtype.is_floating and labels.shape.rank == logits.shape.rank
        if name.replace("_", "").lower() in _OF_NUMBERS and not is_logits:
            raise ValueError(
                f"{argument} has {name}, and the labels are classes ({labels.dtype.name}, shape "
                f"{labels.shape}): it fits logits of the shape {logits.shape}, such as a teacher's. For "
                f"classes write {_path(library)}.{_LOSSES[outputs]}."
            )


def _path(library: Any) -> str:
    return f"tf_keras.{library.__name__.rpartition('.')[2]}"


def _as_object(library: Any, value: Any) -> Any:
    """Returns the tf_keras object that a name, configuration or function stands for; None for others."""
    if isinstance(value, str | Mapping):
        value = library.get(value)
    if not getattr(value, "__module__", "").startswith("tf_keras."):
        return None
    if not hasattr(value, "__name__"):
        return value
    class_name = _FUNCTIONS.get(value.__name__)
    return class_name and (getattr(library, class_name, None) or getattr(tf_keras.losses, class_name))()


def _changes(built: Any) -> dict[str, Any] | None:
    """Returns the options that make a loss or metric take logits: {} if it does already; None if none do."""
    if type(built).__name__ in _WITHOUT_LOGITS:
        return None
    config = built.get_config()
    if "from_logits" in config:
        return {} if config["from_logits"] else {"from_logits": True}
    threshold = config.get("threshold")
    if threshold is None or not 0 < threshold < 1:
        return {}
    if type(built).__name__ in ("F1Score", "FBetaScore"):
        return None
    return {"threshold": round(math.log(threshold / (1 - threshold)), 4)}

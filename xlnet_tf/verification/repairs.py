"""The search for weights in a wrong place: for changes that repair spoilt weights.

Trained weights are better than the same weights transposed, swapped, negated or removed. Where somebody has
transposed a kernel or exchanged two layers, doing it once more repairs the model, and the loss on a text
falls. The gradient shows which changes are promising; those are tried.
"""

import heapq
import itertools
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from xlnet_tf.checkpoints import names
from xlnet_tf.config import XLNetConfig
from xlnet_tf.verification.losses import ParagraphLosses

Weights = Mapping[str, np.ndarray]

_TRIED = 12


class Repair(NamedTuple):
    """A change of weights.

    Attributes:
        what: for a person.
        weights: that it changes, by name.
        loss: with the change; before it is tried, as the gradient predicts it.
    """

    what: str
    weights: Weights
    loss: float


def find_repairs(losses: ParagraphLosses, config: XLNetConfig) -> tuple[float, list[Repair]]:
    """Tries the changes of a model's weights that promise most.

    Returns:
        The loss of the weights as they are, and the changes that were tried, the best first.
    """
    weights = {  # as they are now: the arrays share the variables' memory, which an assignment leaves alone
        name: np.asarray(memoryview(variable.read_value()))
        for name, variable in losses.variables.items()
        if name.startswith("layer_") or name == names.LANGUAGE_MODEL_HEAD
    }
    loss, promising = _promising(losses, weights, config)
    tried = [_tried(losses, weights, repair) for repair in promising]
    other = "relu" if config.ff_activation.startswith("gelu") else "gelu"
    tried.append(Repair(f"ff_activation {other}", {}, losses.with_activation(other)))
    return loss, sorted(tried, key=attrgetter("loss"))


def _promising(losses: ParagraphLosses, weights: Weights, config: XLNetConfig) -> tuple[float, list[Repair]]:
    """Returns the loss of the weights, and the changes by which it falls most if its gradient is right."""
    loss, gradients = losses.gradients(weights)

    def predicted(change: Weights) -> float:
        gains = (np.vdot(gradients[name], new - weights[name]) for name, new in change.items())
        return loss + float(sum(gains))

    changes = (Repair(what, change, predicted(change)) for what, change in _changes(weights, config))
    return loss, heapq.nsmallest(_TRIED, changes, key=attrgetter("loss"))


def _tried(losses: ParagraphLosses, weights: Weights, repair: Repair) -> Repair:
    try:
        for name, value in repair.weights.items():
            losses.variables[name].assign(value)
        return repair._replace(loss=losses.of_order())
    finally:
        for name in repair.weights:
            losses.variables[name].assign(weights[name])


def _changes(weights: Weights, config: XLNetConfig) -> Iterator[tuple[str, Weights]]:
    for name, value in weights.items():
        matrix = value.reshape(len(value), -1)
        if name.endswith("/kernel"):
            yield f"{name} removed", {name: np.zeros_like(value)}
            if matrix.shape[0] == matrix.shape[1]:
                yield f"{name} transposed", {name: matrix.T.reshape(value.shape)}
        elif not name.endswith("gamma"):
            yield f"{name} with the other sign", {name: -value}
    for layer in range(config.n_layer):
        yield from _swaps(weights, layer)
    for first, second in itertools.pairwise(range(config.n_layer)):
        yield f"layers {first} and {second} exchanged", _exchanged(weights, first, second)


def _swaps(weights: Weights, layer: int) -> Iterator[tuple[str, Weights]]:
    scope = f"layer_{layer}/attention"
    kernels = [f"{scope}/{name}/kernel" for name in ("query", "key", "value", "position", "output")]
    for one, other in itertools.combinations(kernels, 2):
        yield f"{one} and {other} swapped", {one: weights[other], other: weights[one]}


def _exchanged(weights: Weights, first: int, second: int) -> Weights:
    scopes = {f"layer_{first}/": f"layer_{second}/", f"layer_{second}/": f"layer_{first}/"}
    return {
        name: weights[name.replace(scope, other, 1)]
        for scope, other in scopes.items()
        for name in weights
        if name.startswith(scope)
    }

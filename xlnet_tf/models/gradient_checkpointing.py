"""Gradient checkpointing: recomputes a block's activations in the backward pass instead of keeping them."""

import functools
from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.layers.kernels import control_dependency_zero


def recomputed(call: functools.partial, memory_gradient: bool) -> Callable:
    """Returns the call of a block that keeps only its inputs for the gradient: streams and memory.

    Values from the seed or the rows' directions must wait for the inputs: a compiler that finds them
    unchanged would keep them for all layers. Projected positions are kept: they do not grow with the rows.
    Only the arguments of `again` get a gradient.
    """
    seed, positions, memory = (call.keywords[name] for name in ("seed", "positions", "memory"))

    def run(content, query):
        inputs = {"query": query, "memory": memory if memory_gradient else None}
        inputs = {name: value for name, value in inputs.items() if value is not None}

        def again(content, *values):
            late = positions._replace(direction=_after(positions.direction, content))
            streams = {"query": None, **dict(zip(inputs, values))}
            outputs = call(content, **streams, seed=_after(seed, content), positions=late)
            return [output for output in outputs if output is not None]

        content, *queries = tf.recompute_grad(again)(content, *inputs.values())
        return content, queries[0] if queries else None

    return run


def _after(value: tf.Tensor | None, stream: tf.Tensor) -> tf.Tensor | None:
    """Returns a tensor as it is, computed after a stream."""
    return None if value is None else value + control_dependency_zero(stream[0, 0, 0], value.dtype)

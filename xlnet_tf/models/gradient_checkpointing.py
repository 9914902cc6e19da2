"""Gradient checkpointing: recomputes a block's activations in the backward pass instead of keeping them."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from xlnet_tf.layers.kernels import Kernels, control_dependency_zero


def recomputed(call: functools.partial, memory_gradient: bool, cheap: bool) -> Callable:
    """Returns the call of a block that keeps only its inputs for the gradient: streams and memory.

    With `cheap`, it also keeps the results of products with weights: queries, keys, values, the attention's
    and the feed-forward network's outputs. Most of a block's time goes into these products, most of its
    memory into scores, probabilities, dropout and activation.

    Values from the seed or the rows' directions must wait for the inputs: a compiler that finds them
    unchanged would keep them for all layers. Projected positions are kept: they do not grow with the rows.
    Only the arguments of `again` get a gradient.
    """
    seed, positions, memory = (call.keywords[name] for name in ("seed", "positions", "memory"))
    products = _KeptProducts(call.keywords["kernels"]) if cheap else None

    def run(content, query):
        inputs = {"query": query, "memory": memory if memory_gradient else None}
        inputs = {name: value for name, value in inputs.items() if value is not None}

        def again(content, *values):
            late = positions._replace(direction=_after(positions.direction, content))
            changed = {"query": None, **dict(zip(inputs, values))}
            if products:
                products.begin(content)
                changed["kernels"] = products
            outputs = call(content, **changed, seed=_after(seed, content), positions=late)
            return [output for output in outputs if output is not None]

        content, *queries = tf.recompute_grad(again)(content, *inputs.values())
        return content, queries[0] if queries else None

    return run


class _KeptProducts:
    """Kernels that compute a block's products with weights once and give them back when it is recomputed."""

    def __init__(self, kernels: Kernels):
        self._kernels = kernels
        self._results: list[tf.Tensor] = []
        self._known: Iterator[tf.Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def begin(self, stream: tf.Tensor) -> None:
        """Begins the block; whatever is given back waits for its stream."""
        self._known = iter([_after(result, stream) for result in self._results]) if self._results else None

    def dense(self, rows, weights, bias):
        return self._product(self._kernels.dense, rows, weights, bias)

    def project_heads(self, stream, weights):
        return self._product(self._kernels.project_heads, stream, weights)

    def merge_heads(self, heads, weights, dtype):
        return self._product(functools.partial(self._kernels.merge_heads, dtype=dtype), heads, weights)

    def _product(self, function: Callable, *arguments) -> tf.Tensor:
        if self._known is None:
            self._results.append(function(*arguments))
            return self._results[-1]
        known = next(self._known)

        @tf.custom_gradient
        def product(*tensors):
            def gradient(upstream):
                with tf.GradientTape() as tape:
                    tape.watch(tensors)
                    result = function(*tensors)
                return tape.gradient(result, tensors, upstream)

            return known, gradient

        return product(*map(tf.convert_to_tensor, arguments))


def _after(value: tf.Tensor | None, stream: tf.Tensor) -> tf.Tensor | None:
    return None if value is None else value + control_dependency_zero(stream[0, 0, 0], value.dtype)

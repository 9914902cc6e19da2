"""Functions that a CPU runs as one loop over memory, where TensorFlow would run an operation at a time.

They are compiled on their own, between the products of matrices, which TensorFlow itself computes faster
than XLA. That is for training only: servers need not have XLA.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.layers import hardware


def compiled(function: Callable) -> Callable:
    """Compiles a function of tensors, where it is part of a graph for CPUs; elsewhere it stays as it is.

    Args:
        function: called with tensors by position, of which the first is of the result's dtype, and with other
            settings by name. Once compiled, it computes in float32: that costs nothing within a loop.
    """

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def by_xla(*tensors, **settings):
        wide = [tf.cast(tensor, tf.float32) if _is_real(tensor) else tensor for tensor in tensors]
        return tf.cast(function(*wide, **settings), tensors[0].dtype)

    @functools.wraps(function)
    def call(*tensors, **settings):
        return (by_xla if _pays() else function)(*tensors, **settings)

    return call


def fused(function: Callable) -> Callable:
    """Compiles a function of tensors, and its gradient, for which only the arguments are kept.

    Args:
        function: as for compiled. The gradient is that of its first argument.
    """
    forward = compiled(function)

    @compiled
    def gradient(first, *others, **settings):
        *others, upstream = others
        with tf.GradientTape() as tape:
            tape.watch(first)
            result = function(first, *others, **settings)
        return tape.gradient(result, first, upstream)

    @functools.wraps(function)
    def call(first, *others, **settings):
        if not _pays():
            return function(first, *others, **settings)

        @tf.custom_gradient
        def run(first):
            return forward(first, *others, **settings), lambda upstream: gradient(
                first, *others, upstream, **settings
            )

        return run(first)

    return call


def _pays() -> bool:
    return tf.inside_function() and hardware.kind() == "cpu"


def _is_real(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating

"""Functions that a CPU runs as one loop over memory, where TensorFlow would run an operation at a time.

They are compiled on their own, between the products of matrices, which TensorFlow itself computes faster
than XLA. That is for training only: servers need not have XLA.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.layers import hardware


def compiled(function: Callable) -> Callable:
    """Compiles a function of tensors where that pays: in a graph for CPUs.

    Args:
        function: called with tensors by position and other settings by name.
    """
    by_xla = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*tensors, **settings):
        run = by_xla if tf.inside_function() and hardware.kind() == "cpu" else function
        return run(*tensors, **settings)

    return call


def fused(function: Callable) -> Callable:
    """Compiles a function of tensors and its gradient, which computes all but the arguments again.

    Args:
        function: as for compiled; its result is one tensor.
    """

    @compiled
    def gradient(upstream, *tensors, **settings):
        with tf.GradientTape() as tape:
            tape.watch([tensor for tensor in tensors if tensor.dtype.is_floating])
            result = function(*tensors, **settings)
        return tape.gradient(result, tensors, upstream)

    forward = compiled(function)

    @functools.wraps(function)
    def call(*tensors, **settings):
        @tf.custom_gradient
        def run(*tensors):
            return forward(*tensors, **settings), lambda upstream: gradient(upstream, *tensors, **settings)

        return run(*tensors)

    return call

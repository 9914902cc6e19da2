"""Functions that a CPU runs as one loop over memory, where TensorFlow would run an operation at a time.

They are compiled on their own, between the products of matrices, which TensorFlow itself computes faster
than XLA. What `xla_forward` compiles computes in float32: that costs nothing within a loop.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator

import tensorflow as tf

# XLA takes 25 ms for a shape of a function: worth it if a run computes at least this many elements of it.
_LEAST_ELEMENTS = 1 << 23
_uses = contextvars.ContextVar("uses", default=1.0)


@contextlib.contextmanager
def expect_uses(number: float) -> Iterator[None]:
    """Traces the block for a run that uses each unknown shape `number` times on average.

    MirroredStrategy traces on threads of its own, which do not see it: there each shape counts as used once.
    """
    token = _uses.set(number)
    try:
        yield
    finally:
        _uses.reset(token)


def compiled_if_large(function: Callable, least_elements: int = _LEAST_ELEMENTS) -> Callable:
    """Compiles a function of tensors, or lists of them; settings go by name.

    Where shapes are not known yet, it is compiled for those that are large, or come often (`expect_uses`),
    and TensorFlow runs one operation at a time for the others. Results differ by rounding.
    """

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def by_xla(*tensors, **settings):
        return function(*tensors, **settings)

    def by_tensorflow(*tensors, **settings):
        return tf.nest.map_structure(tf.convert_to_tensor, function(*tensors, **settings))

    @functools.wraps(function)
    def call(*tensors, **settings):
        compiled = functools.partial(by_xla, *tensors, **settings)
        given = [each for each in tf.nest.flatten(tensors) if each is not None]
        if all(each.shape.is_fully_defined() for each in given):
            results = compiled()
        else:
            plain = functools.partial(by_tensorflow, *tensors, **settings)
            largest = tf.reduce_max(tf.stack([tf.size(each, tf.int64) for each in given]))
            results = tf.cond(largest >= math.ceil(least_elements / _uses.get()), compiled, plain)
        # What optimizes the graph does not look into the function, and warns where it misses the shape.
        return tf.nest.map_structure(lambda result: tf.ensure_shape(result, result.shape), results)

    return call


def xla_forward(function: Callable, dtype: tf.DType | None = None) -> Callable:
    """Compiles a function of tensors, or lists of them, in float32 and without a gradient of its own.

    Other settings go by name; without dtype the result has the first argument's type.
    """

    @compiled_if_large
    @functools.wraps(function)
    def call(*tensors, **settings):
        result = in_float32(function)(*tensors, **settings)
        return tf.cast(result, dtype or tensors[0].dtype)

    return call


def xla_forward_backward(function: Callable) -> Callable:
    """Compiles a function, and the gradient of its first argument, which needs the arguments alone."""
    forward = xla_forward(function)

    @xla_forward
    def gradient(first, *others, **settings):
        *others, upstream = others
        with tf.GradientTape() as tape:
            tape.watch(first)
            result = function(first, *others, **settings)
        return tape.gradient(result, first, upstream)

    @functools.wraps(function)
    def call(first, *others, **settings):
        @tf.custom_gradient
        def run(first):
            return forward(first, *others, **settings), lambda upstream: gradient(
                first, *others, upstream, **settings
            )

        return run(first)

    return call


def xla_forward_linear(function: Callable) -> Callable:
    """Compiles a linear function of tensors, but not its gradient.

    The gradient needs none of the function's numbers, so TensorFlow's own costs nothing extra; and XLA is
    slower at the pads that slices turn into.

    Args:
        function: called with a list of constants, each a tensor or None, and a list of terms, the tensors in
            which it is linear; with settings by name. Its result is float32.
    """
    forward = xla_forward(function, tf.float32)

    @functools.wraps(function)
    def call(constants, terms, **settings):
        @tf.custom_gradient
        def run(*terms):
            def gradient(upstream):
                with tf.GradientTape() as tape:
                    tape.watch(terms)
                    result = function(constants, list(terms), **settings)
                return tape.gradient(result, terms, upstream)

            return forward(constants, list(terms), **settings), gradient

        return run(*terms)

    return call


def in_float32(function: Callable) -> Callable:
    """Wraps a function to widen its tensors to float32."""

    @functools.wraps(function)
    def call(*tensors, **settings):
        return function(*tf.nest.map_structure(_widen, tensors), **settings)

    return call


def _widen(tensor: tf.Tensor | None) -> tf.Tensor | None:
    return tf.cast(tensor, tf.float32) if tensor is not None and tensor.dtype.is_floating else tensor

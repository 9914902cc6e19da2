"""Gradient accumulation: a replica's rows are split into micro-batches, whose results are summed."""

from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.training.data import Features

MEMORY = ("memory", "memory_mask")  # of a model's inputs, in the order of what a step returns


def accumulate(
    step: Callable[[Features, tf.Tensor], tuple], features: Features, micro_batches: int, zeros: tuple
) -> tuple:
    """Calls a step with each micro-batch, in a loop of the graph; sums the results and joins the memories.

    The step takes features of a micro-batch and its index, and returns (*results, next memory). This returns
    (*sums of the results, next memory), which is () or ([L, B, M, D], [B, M]). `features` are [B, ...], or
    [L, B, ...] of the memory; `zeros` have the results' structure, shapes and types.
    """
    features = {name: _split(value, micro_batches, rows_axis(name)) for name, value in features.items()}
    memories = tuple(
        tf.TensorArray(features[name].dtype, micro_batches, element_shape=features[name].shape[1:])
        for name in MEMORY
        if name in features
    )

    def body(index, totals, memories):
        micro_features = {name: value[index] for name, value in features.items()}
        *results, next_memory = step(micro_features, index)
        totals = tf.nest.map_structure(tf.add, totals, tuple(results))
        memories = tuple(array.write(index, value) for array, value in zip(memories, next_memory))
        return index + 1, totals, memories

    _, totals, memories = tf.while_loop(
        lambda index, *_: index < micro_batches, body, (0, zeros, memories), maximum_iterations=micro_batches
    )
    return *totals, tuple(_join(array.stack(), rows_axis(name)) for array, name in zip(memories, MEMORY))


def rows_axis(name: str) -> int:
    """Returns the axis of the rows: memories [L, B, M, D] have the layers before them."""
    return 1 if name in ("memory", "next_memory") else 0


def _split(value: tf.Tensor, count: int, axis: int) -> tf.Tensor:
    """Cuts an axis into equal parts and puts them first: [..., B, ...] -> [count, ..., B / count, ...]."""
    # With several hosts, tf.distribute forgets how many rows there are; a graph for all lengths knows none.
    shape = [tf.shape(value)[index] if size is None else size for index, size in enumerate(value.shape)]
    value = tf.reshape(value, shape[:axis] + [count, shape[axis] // count] + shape[axis + 1 :])
    axes = list(range(len(value.shape)))
    return tf.transpose(value, [axis] + axes[:axis] + axes[axis + 1 :]) if axis else value


def _join(value: tf.Tensor, axis: int) -> tf.Tensor:
    """Undoes `_split`."""
    axes = list(range(len(value.shape)))
    value = tf.transpose(value, axes[1 : axis + 1] + [0] + axes[axis + 1 :]) if axis else value
    shape = value.shape.as_list()
    return tf.reshape(value, shape[:axis] + [-1] + shape[axis + 2 :])

"""Work on a list of any length in parts, so that the memory it takes is bounded."""

from collections.abc import Callable, Mapping

import tensorflow as tf


def map_in_chunks(
    function: Callable[[tf.Tensor, tf.Tensor], Mapping[str, tf.Tensor]],
    count: tf.Tensor,
    size: tf.Tensor,
    specs: Mapping[str, tf.TensorSpec],
) -> dict[str, tf.Tensor]:
    """Applies a function to chunks of a list and joins the rows that it returns, named as the specs.

    It takes begin and end of a chunk; `count` and `size` are those of the list and of a chunk.
    """
    chunks = (count + size - 1) // size
    if tf.executing_eagerly() and not chunks:  # eagerly, an empty array cannot be concatenated
        return {
            name: tf.zeros([length or 0 for length in spec.shape], spec.dtype) for name, spec in specs.items()
        }
    arrays = {
        name: tf.TensorArray(spec.dtype, size=chunks, element_shape=spec.shape, infer_shape=False)
        for name, spec in specs.items()
    }

    def step(index, arrays):
        results = function(index * size, tf.minimum((index + 1) * size, count))
        return index + 1, {name: array.write(index, results[name]) for name, array in arrays.items()}

    _, arrays = tf.while_loop(
        lambda index, _: index < chunks, step, (tf.constant(0), arrays), parallel_iterations=1
    )
    return {name: array.concat() for name, array in arrays.items()}


def map_query_blocks(attend: Callable, stream: tf.Tensor, context) -> tf.Tensor:
    """Lets a stream [B, T, D] attend, one block of queries with their AttentionContext at a time."""

    def block(begin, end):
        attended = attend(stream[:, begin:end], context.of_block(begin, end))
        return {"attended": tf.transpose(attended, [1, 0, 2])}  # map_in_chunks joins the first axis

    spec = tf.TensorSpec([None, None, stream.shape[2]], stream.dtype)
    blocks = map_in_chunks(block, tf.shape(stream)[1], context.size, {"attended": spec})
    return tf.transpose(blocks["attended"], [1, 0, 2])

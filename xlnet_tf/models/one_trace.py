"""One traced graph for all layers that differ in their weights only.

An operation takes a third of a millisecond to trace, and a layer's training step has a thousand of them, for
each length of the rows.
"""

from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.layers.block import TransformerBlock


def traced_once(block: TransformerBlock) -> Callable:
    """Returns a call of a block that is traced once for each structure and shape of its arguments.

    It takes a block's arguments, with the weights of the layer that it is to compute. No gradient flows into
    positions and contexts, which no weights take part in: the graph of the gradient, which is traced once,
    too, would compute it for each layer.
    """

    @tf.function(autograph=False)
    def run(content, query, positions, content_context, query_context, **others):
        constants = positions, content_context, query_context
        positions, *contexts = tf.nest.map_structure(_without_gradient, constants)
        return block(content, query, others.pop("memory"), positions, *contexts, **others)

    def call(content, query, *, weights, **others):
        return run(content, query, weights=tf.nest.map_structure(tf.convert_to_tensor, weights), **others)

    return call


def _without_gradient(value):
    return tf.stop_gradient(value) if tf.is_tensor(value) else value

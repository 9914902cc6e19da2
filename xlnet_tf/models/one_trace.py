"""One traced graph for all layers that differ in their weights only.

An operation takes a third of a millisecond to trace, and a layer's training step has a thousand of them, for
each length of the rows.
"""

from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.layers.block import TransformerBlock
from xlnet_tf.layers.kernels import Kernels


def traced_once(block: TransformerBlock, kernels: Kernels) -> Callable:
    """Returns a call of a block that is traced once for each structure and shape of its arguments.

    It takes a block's arguments by name, with the weights of the layer that it is to compute. No gradient
    flows into positions and contexts, which no weights take part in: the graph of the gradient, which is
    traced once, too, would compute it for each layer.
    """

    @tf.function(autograph=False)
    def run(content, query, memory, weights, seed, *constants):
        constants = tf.nest.map_structure(_without_gradient, constants)
        return block(content, query, memory, *constants, kernels=kernels, seed=seed, weights=weights)

    def call(content, query, *, memory, positions, content_context, query_context, seed, weights):
        weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
        return run(content, query, memory, weights, seed, positions, content_context, query_context)

    return call


def _without_gradient(value):
    return tf.stop_gradient(value) if tf.is_tensor(value) else value

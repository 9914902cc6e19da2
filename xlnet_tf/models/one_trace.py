"""One traced graph for all layers that differ in their weights only.

An operation takes a third of a millisecond to trace, and a layer's training step has a thousand of them, for
each length of the rows.
"""

from collections.abc import Callable

import tensorflow as tf

from xlnet_tf.layers.block import TransformerBlock


def traced_once(block: TransformerBlock) -> Callable:
    """Returns a call of a block that is traced once for each structure and shape of its arguments.

    It takes a block's arguments, with the weights of the layer that it is to compute, as tensors: a trace is
    of certain variables. No gradient flows into positions and contexts, which no weights take part in: the
    graph of the gradient, which is traced once, too, would compute it for each layer.
    """

    @tf.function(autograph=False)
    def run(content, query, positions, content_context, query_context, **others):
        constants = positions, content_context, query_context
        parts = [tf.stop_gradient(x) if tf.is_tensor(x) else x for x in tf.nest.flatten(constants)]
        positions, *contexts = tf.nest.pack_sequence_as(constants, parts)
        return block(content, query, others.pop("memory"), positions, *contexts, **others)

    return run

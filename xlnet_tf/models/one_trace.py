"""One traced graph for all layers that differ in their weights only.

An operation takes a third of a millisecond to trace, and a layer's training step has hundreds of them, for
each length of the rows.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from xlnet_tf.layers.block import TransformerBlock


def differ_in_weights_only(blocks: Sequence[TransformerBlock]) -> bool:
    """Returns whether one trace computes all blocks: of one kind, with equal rates, and no weights frozen.

    Of a frozen block, the shared gradient's graph would compute gradients that nobody needs.
    """
    kinds = {
        (type(each), each.dropout, each.attention.attention_dropout, each.feed_forward.dropout)
        for each in blocks
    }
    return len(kinds) == 1 and all(len(each.trainable_weights) == len(each.weights) for each in blocks)


def traced_once(block: TransformerBlock) -> Callable:
    """Returns a call of a block that is traced once for each structure and shape of its arguments.

    It takes a block's arguments, with the weights of the layer that it is to compute, as tensors: a trace
    that reads a variable reads the same one for each layer. Positions and contexts depend on no weights, so
    their gradient is stopped; the gradient's graph, traced once, too, would compute it for each layer.
    """

    @tf.function(autograph=False)
    def run(content, query, positions, content_context, query_context, **others):
        constants = positions, content_context, query_context
        parts = [tf.stop_gradient(x) if tf.is_tensor(x) else x for x in tf.nest.flatten(constants)]
        positions, *contexts = tf.nest.pack_sequence_as(constants, parts)
        return block(content, query, others.pop("memory"), positions, *contexts, **others)

    return run

"""Which tokens of a text are given, and the positions and order of those to write.

Shapes: B batch, T tokens, G tokens to write.
"""

from typing import NamedTuple

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.text.special_tokens import PAD_ID

AT_ONCE = 1024  # tokens; longer texts are read in blocks


def check_others_are_seen(encoder: XLNetEncoder):
    """Raises UserError if the attention of an encoder hides from every token all others."""
    if encoder.attention_type == "uni" and encoder.same_length:
        raise UserError(
            "the encoder has same_length=True, which without a memory hides from every token all others; "
            "expected False: give this option when loading the model."
        )


class TextLayout(NamedTuple):
    """Texts of a batch, each with tokens of its own to write, as one factorization order.

    The context comes first and sees itself; what is written sees the context and what was written before it.
    No token sees padding, or gaps that are not filled yet.
    """

    # ids, is_context: [B, T] int32, of which only those that are given, bool, are read
    ids: tf.Tensor
    is_context: tf.Tensor
    # [B, G] int32, the positions to write, in that order; -1 from where a row has no more. They may lie
    # beyond T, but for the first of each row, and up to `length`.
    order: tf.Tensor
    length: int | tf.Tensor
    forward: bool  # whether all is written to the right of all that it sees
    in_blocks: bool = False  # whether the context is read in blocks (see XLNetEncoder): where it may be long


def continuation(
    ids: tf.Tensor, lengths: tf.Tensor, new_tokens: tf.Tensor, most: int | tf.Tensor
) -> TextLayout:
    """Lays out texts that continue prompts, from left to right.

    `ids` [B, T] are padded on the right, `lengths` [B] may be 0, and `new_tokens` [B] at most `most`, a
    scalar, which is static if XLA is to compile the graph.
    """
    width = ids.shape[1] or tf.shape(ids)[1]
    steps = tf.range(most)[None]
    order = tf.where(steps < new_tokens[:, None], lengths[:, None] + steps, -1)
    # One column more, where the longest prompt's first token goes.
    return TextLayout(
        ids=tf.pad(ids, [[0, 0], [0, 1]], constant_values=PAD_ID),
        is_context=tf.sequence_mask(lengths, width + 1),
        order=order,
        length=width + most,
        forward=True,
    )


def infilling(ids: tf.Tensor, is_context: tf.Tensor, order: tf.Tensor) -> TextLayout:
    """Lays out texts [B, T] with anything in the gaps and as padding; order [B, G] ends in -1."""
    return TextLayout(ids, is_context, order, length=ids.shape[1] or tf.shape(ids)[1], forward=False)

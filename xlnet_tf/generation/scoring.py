"""How likely a text is, in a graph: the log-probability of each of its tokens, in any factorization order.

Whatever the order, the chain rule makes the sum over a text's tokens the log-probability of the text. Each
order is a distribution of its own: nothing makes a model give a text the same probability in all of them.
"""

from collections.abc import Mapping

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.generation import sampling
from xlnet_tf.generation.arrays.scoring import ORDERS
from xlnet_tf.generation.layout import check_others_are_seen
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID

# Rows of logits computed at a time: with 32,000 pieces, 64 MB.
_BLOCK = 512


def join_contexts(
    contexts: tf.RaggedTensor, texts: tf.RaggedTensor, length
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Puts contexts, which are given and not scored, before texts: both ragged [B, (pieces)] int32.

    SEP and CLS, which no token of a text would see, are left out, and segments, since there is but one.
    Returns the model's features [B, T], padded on the right, and is_scored [B, T] bool.
    """
    ids = tf.concat([contexts, texts], axis=1)
    features = {
        "input_word_ids": ids.to_tensor(PAD_ID, shape=tf.cast([-1, length], tf.int64)),
        "input_mask": tf.sequence_mask(ids.row_lengths(), length, tf.int32),
    }
    is_context = tf.sequence_mask(contexts.row_lengths(), length)
    return features, tf.cast(features["input_mask"], tf.bool) & ~is_context


def text_tokens(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Finds the tokens of packed texts [B, T] that are neither padding nor SEP nor CLS: [B, T] bool."""
    ids = features["input_word_ids"]
    return tf.cast(features["input_mask"], tf.bool) & (ids != SEP_ID) & (ids != CLS_ID)


def order_ranks(is_scored: tf.Tensor, order: str, seeds: tf.Tensor | None = None) -> tf.Tensor:
    """Returns [B, T] int32, each scored token's rank in an order; other tokens' are meaningless.

    For "random", rows with equal seeds and equally many scored tokens get the same order.
    """
    if order not in ORDERS:
        raise UserError(f"the order is {order!r}; expected one of {', '.join(ORDERS)}.")
    numbers = tf.cumsum(tf.cast(is_scored, tf.int32), axis=1) - 1  # from left to right, from 0
    if order == "left_to_right":
        return numbers
    if order == "right_to_left":
        return tf.reduce_sum(tf.cast(is_scored, tf.int32), axis=1, keepdims=True) - 1 - numbers
    draws = sampling.uniform_draws(seeds, tf.shape(is_scored)[1])
    # A token's draw is that of its number, so that padding, which others decide, changes nothing.
    keys = tf.where(is_scored, tf.gather(draws, tf.maximum(numbers, 0), batch_dims=1), 1.0)
    return tf.argsort(tf.argsort(keys, stable=True))  # the inverse permutation


def token_log_probabilities(
    model: XLNetPretrainer,
    features: Mapping[str, tf.Tensor],
    is_scored: tf.Tensor,
    ranks: tf.Tensor,
    in_blocks: bool = False,
) -> tf.Tensor:
    """Computes the log-probability of each scored token, given what comes before it in the order.

    What is neither scored nor padding is context: given, and seen by all. SEP and CLS come last in every
    order and are seen by none. Without context, the first token of an order is predicted from nothing: its
    query attends to no token.

    Args:
        features: input_word_ids, input_mask and, unless all is of one segment, input_type_ids [B, T], padded
            on any side.
        ranks: [B, T] int32, the scored tokens' ranks (see `order_ranks`).

    Returns:
        [B, T] float32, in nats; 0 for tokens that are not scored. Their sum is the text's log-probability.

    Source: paper section 2.2, eq. 3, with all tokens as targets.
    """
    encoder = model.encoder
    if encoder.uniform_when_blind:
        raise UserError(
            "the encoder has uniform_when_blind=True, which lets the first token of an order see itself; "
            "expected False: probabilities would not sum to one."
        )
    check_others_are_seen(encoder)
    last = tf.shape(is_scored)[1] + 1
    rank = tf.where(text_tokens(features), 0, last)
    rank = tf.where(is_scored, ranks + 1, rank)
    encoded = model.encoder(
        {**features, "permutation_rank": rank, "target_mask": is_scored},
        training=False,
        query_only=True,
        in_blocks=in_blocks,
    )
    log_probabilities = _pick(model, encoded["query_output"], tf.cast(features["input_word_ids"], tf.int32))
    return tf.where(is_scored, log_probabilities, 0.0)


def _pick(model: XLNetPretrainer, query_output: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns the log-probabilities [B, T] of pieces [B, T], without ever holding logits [B, T, V]."""
    shape = tf.shape(ids)
    rows = tf.reshape(query_output, [-1, model.encoder.config.d_model])  # [B * T, D]
    count = tf.shape(rows)[0]
    blocks = tf.maximum(-(-count // _BLOCK), 1)
    block = -(-count // blocks)
    padding = blocks * block - count

    def pick(inputs):
        rows, ids = inputs  # [S, D], [S]
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(ids, model.logits(rows[None])[0])

    picked = tf.map_fn(
        pick,
        (
            tf.reshape(tf.pad(rows, [[0, padding], [0, 0]]), [blocks, block, model.encoder.config.d_model]),
            tf.reshape(tf.pad(tf.reshape(ids, [-1]), [[0, padding]]), [blocks, block]),
        ),
        parallel_iterations=1,
        fn_output_signature=tf.float32,
    )
    return tf.reshape(tf.reshape(picked, [-1])[:count], shape)

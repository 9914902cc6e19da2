"""Fills gaps of texts: several at once, jointly, in any order or the easiest first.

A model that predicts masked words independently gives p(New) and p(York), which also fit "New Angeles" and
"Los York". A factorization order gives p(New) p(York | New).

Shapes: B batch, T tokens, G tokens to write, C candidates of a text, K guesses, V vocabulary.
"""

from typing import NamedTuple

import tensorflow as tf

from xlnet_tf.generation import sampling as sampling_lib
from xlnet_tf.generation.cached_layer import shape_of
from xlnet_tf.generation.decoder import CachedDecoder
from xlnet_tf.generation.decoding_loop import DecodedTokens, best_continuations, write
from xlnet_tf.generation.layout import TextLayout
from xlnet_tf.generation.sampling import Sampling, log_probabilities
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.special_tokens import PAD_ID


class Guesses(NamedTuple):
    """The likeliest pieces [B, G, K] for each token to write, best first, and their log_probs in nats.

    Without more to write: PAD and 0; without more pieces: PAD and -inf.
    """

    tokens: tf.Tensor
    log_probs: tf.Tensor

    @classmethod
    def best(cls, log_probs: tf.Tensor, order: tf.Tensor, count: int) -> "Guesses":
        """Takes the `count` best of log-probabilities [B, G, V] of an order [B, G]."""
        values, tokens = tf.math.top_k(log_probs, count)
        exists = order[:, :, None] >= 0
        is_piece = exists & (values > float("-inf"))  # symbols are not
        return cls(tf.where(is_piece, tokens, PAD_ID), tf.where(exists, values, 0.0))


class Filled(NamedTuple):
    """Joint fills of texts' gaps, best first, and what makes them."""

    fills: DecodedTokens
    apart: tf.Tensor  # [B, C, G] float32, log-probabilities of the same tokens, each from the text alone
    guesses: Guesses  # for each gap, after the best fill of those before it in the order
    guesses_apart: Guesses  # for each gap, all others unknown


def fill_jointly(
    model: XLNetPretrainer, layout: TextLayout, beams: int, guesses: int, xla: bool = False
) -> Filled:
    """Finds the likeliest joint fills of texts' gaps by beam search, and `guesses` guesses for each gap."""
    decoder = CachedDecoder(model, layout, beams, xla)
    order = layout.order
    logits, cache = decoder.start(order)
    apart = log_probabilities(logits)  # [B, G, V]
    fills = write(decoder, order, logits[:, :1], cache, best_continuations)
    by_gap = tf.transpose(fills.tokens, [0, 2, 1])  # [B, G, C]
    fills_apart = tf.transpose(tf.gather(apart, by_gap, batch_dims=2), [0, 2, 1])
    jointly = log_probabilities(_reread(model, layout, fills.tokens[:, 0], _steps_of(order)))
    return Filled(
        fills=fills,
        apart=tf.where(order[:, None] >= 0, fills_apart, 0.0),
        guesses=Guesses.best(jointly, order, guesses),
        guesses_apart=Guesses.best(apart, order, guesses),
    )


def fill_easiest_first(
    model: XLNetPretrainer, layout: TextLayout, sampling: Sampling, xla: bool = False
) -> tuple[DecodedTokens, tf.Tensor]:
    """Fills gaps in an order that the model finds: always the gap whose best piece is likeliest.

    Returns the result, one candidate per text, and the order of filling: positions [B, G] int32.
    """
    gaps = layout.order
    steps = shape_of(gaps)[1]
    draws = sampling_lib.uniform_draws(sampling.seeds, steps)
    decoder = CachedDecoder(model, layout, xla=xla)

    def add(step, logits, open_gaps, written, order):
        log_probs = log_probabilities(logits)  # [B, G, V]
        ease = tf.where(open_gaps >= 0, tf.reduce_max(log_probs, axis=2), float("-inf"))
        easiest = tf.argmax(ease, axis=1, output_type=tf.int32)
        log_probs = tf.gather(log_probs, easiest, batch_dims=1)  # [B, V]
        tokens = sampling_lib.choose(log_probs, draws[:, step], sampling)
        chosen = tf.gather(log_probs, tokens, batch_dims=1)
        written = written.add(step, tokens[:, None], chosen[:, None])
        position = tf.gather(open_gaps, easiest, batch_dims=1)
        order = tf.where(tf.range(steps) == step, position[:, None], order)
        open_gaps = tf.where(tf.range(steps) == easiest[:, None], -1, open_gaps)
        unfinished = tf.reduce_any(open_gaps >= 0, axis=1, keepdims=True)
        return open_gaps, written._replace(unfinished=unfinished), order

    def body(step, cache, open_gaps, written, order):
        last, position = written.tokens[:, :, step - 1], order[:, step - 1, None]
        logits, cache = decoder.step(cache, last, position, open_gaps[:, None])
        return step + 1, cache, *add(step, logits[:, 0], open_gaps, written, order)

    logits, cache = decoder.start(gaps)
    filled = add(0, logits, gaps, DecodedTokens.nothing(gaps, 1), tf.fill(tf.shape(gaps), -1))
    *_, written, order = tf.while_loop(
        lambda step, cache, open_gaps, *_: (step < steps) & tf.reduce_any(open_gaps >= 0),
        body,
        (1, cache, *filled),
        parallel_iterations=1,
    )
    return written, order


def fill_stepwise(model: XLNetPretrainer, layout: TextLayout, tokens: tf.Tensor) -> tf.Tensor:
    """Predicts all gaps of one text (B = 1) after each step of filling them, from none to S.

    `tokens` [S] int32, S <= G, fill the first gaps of the order. Returns log-probabilities [S + 1, G, V]
    float32 in nats. A filled gap stays predicted from what came before it, as in `fill_jointly`; the others
    see only the filled gaps.
    """
    count = shape_of(tokens)[0]
    every = TextLayout(
        *(tf.repeat(values, count + 1, axis=0) for values in (layout.ids, layout.is_context, layout.order)),
        layout.length,
        layout.forward,
    )
    steps = _steps_of(layout.order)
    filled = steps <= tf.range(count + 1)[:, None]  # [S + 1, G]
    tokens = tf.pad(tokens, [[0, shape_of(steps)[0] - count]])
    ranks = tf.where(filled, steps, shape_of(steps)[0] + 1)
    tokens = tf.where(filled, tokens, PAD_ID)
    return log_probabilities(_reread(model, every, tokens, ranks))


def _steps_of(order: tf.Tensor) -> tf.Tensor:
    """Numbers the steps of an order [B, G] from 1: [G] int32."""
    return tf.range(1, shape_of(order)[1] + 1)


def _reread(model: XLNetPretrainer, layout: TextLayout, tokens: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
    """Predicts, in one pass, tokens [B, G] of filled gaps after those of lower ranks: logits [B, G, V]."""
    order = layout.order
    last = shape_of(order)[1] + 1
    width = shape_of(layout.ids)[1]
    is_there = order[:, :, None] == tf.range(width)  # [B, G, T]

    def at_gaps(values):  # [B, G] or [G], to [B, T]
        return tf.reduce_sum(tf.where(is_there, values[..., None], 0), axis=1)

    filled = tf.where(tf.reduce_any(is_there, axis=1), at_gaps(tokens), layout.ids)
    rank = tf.where(layout.is_context, 0, at_gaps(ranks))
    features = {
        "input_word_ids": filled,
        # What is neither given nor filled comes last.
        "permutation_rank": tf.where(layout.is_context | (rank > 0), rank, last),
        "target_positions": order,
    }
    encoded = model.encoder(features, training=False, query_only=True, in_blocks=layout.in_blocks)
    return model.logits(encoded["query_output"])

"""Writes texts token by token, by sampling or by beam search, in the order of their layout.

Shapes: B batch, G tokens to write, C candidates of a text, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from typing_extensions import Self

from xlnet_tf.generation import sampling as sampling_lib
from xlnet_tf.generation.cached_layer import shape_of
from xlnet_tf.generation.decoder import Cache, CachedDecoder
from xlnet_tf.generation.layout import TextLayout
from xlnet_tf.generation.sampling import Sampling, log_probabilities
from xlnet_tf.generation.settings import WritingRules
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.special_tokens import PAD_ID


class DecodedTokens(NamedTuple):
    """The tokens written so far."""

    tokens: tf.Tensor  # [B, C, G] int32, in the order of writing; PAD after the last one
    # [B, C, G] float32, of each token given all before it, in nats; 0 after the last one
    log_probs: tf.Tensor
    unfinished: tf.Tensor  # [B, C] bool, candidates that need more tokens

    @classmethod
    def nothing(cls, order: tf.Tensor, candidates: int) -> Self:
        """Returns the state before the first step of an order [B, G]."""
        batch, steps = shape_of(order)
        return cls(
            tokens=tf.fill([batch, candidates, steps], PAD_ID),
            log_probs=tf.zeros([batch, candidates, steps]),
            unfinished=tf.tile(order[:, :1] >= 0, [1, candidates]),
        )

    @property
    def totals(self) -> tf.Tensor:
        """[B, C] float32, the log-probability of all that is written, in nats."""
        return tf.reduce_sum(self.log_probs, axis=2)

    def follow(self, parents: tf.Tensor) -> Self:
        """Replaces each candidate by its parent [B, C]."""
        return DecodedTokens(*(tf.gather(values, parents, batch_dims=1) for values in self))

    def add(self, step: tf.Tensor, tokens: tf.Tensor, log_probs: tf.Tensor) -> Self:
        """Writes a token [B, C] to each candidate that is unfinished."""
        is_now = (tf.range(shape_of(self.tokens)[2]) == step) & self.unfinished[:, :, None]
        return self._replace(
            tokens=tf.where(is_now, tokens[:, :, None], self.tokens),
            log_probs=tf.where(is_now, log_probs[:, :, None], self.log_probs),
        )

    def finish(self, step: tf.Tensor, order: tf.Tensor, stop_ids: tf.Tensor) -> Self:
        """Finishes candidates that a stop symbol ends, or their order, with the token of this step."""
        stops = tf.reduce_any(self.tokens[:, :, step, None] == stop_ids, axis=2)
        continues = tf.pad(order, [[0, 0], [0, 1]], constant_values=-1)[:, step + 1] >= 0
        return self._replace(unfinished=self.unfinished & ~stops & continues[:, None])


# Chooses a token for each candidate: from log-probabilities [B, C, V], what is written, and the number of the
# step, to the tokens [B, C] and the candidates that they continue [B, C]; None: each continues itself.
Choice = Callable[[tf.Tensor, DecodedTokens, tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]]
# Changes log-probabilities [B, C, V], given what is written.
Change = Callable[[tf.Tensor, DecodedTokens], tf.Tensor]


def sample(
    model: XLNetPretrainer,
    layout: TextLayout,
    sampling: Sampling,
    stop_ids=(),
    xla: bool = False,
    rules: WritingRules | None = None,
) -> DecodedTokens:
    """Writes one candidate for each text, by greedy choice or sampling; pieces in stop_ids end a text."""

    draws = sampling_lib.uniform_draws(sampling.seeds, shape_of(layout.order)[1])

    def choose(log_probs, written, step):
        return sampling_lib.choose(log_probs[:, 0], draws[:, step], sampling)[:, None], None

    decoder = CachedDecoder(model, layout, xla=xla)
    logits, cache = decoder.start(layout.order[:, :1])
    return write(decoder, layout.order, logits, cache, choose, stop_ids, _change(layout, rules))


def search(
    model: XLNetPretrainer,
    layout: TextLayout,
    beams: int,
    stop_ids=(),
    xla: bool = False,
    rules: WritingRules | None = None,
) -> DecodedTokens:
    """Writes the likeliest candidates that beam search finds for each text, best first.

    Candidates compete by the probability of all that they have written, without a length penalty: it would
    change nothing between texts of one length, and texts that a stop symbol ends compare by their likelihood.
    If there are fewer texts than beams, the others have a log-probability of -inf.
    """
    decoder = CachedDecoder(model, layout, beams, xla)
    logits, cache = decoder.start(layout.order[:, :1])
    return write(decoder, layout.order, logits, cache, best_continuations, stop_ids, _change(layout, rules))


def _change(layout: TextLayout, rules: WritingRules | None) -> Change | None:
    """Returns what keeps the rules, given a text's context and what is written."""
    if rules is None:
        return None
    context = tf.where(layout.is_context, layout.ids, PAD_ID)[:, None]

    def change(log_probs, written):
        contexts = tf.tile(context, [1, shape_of(written.tokens)[1], 1])
        return sampling_lib.apply_rules(log_probs, tf.concat([contexts, written.tokens], axis=2), rules)

    return change


def write(
    decoder: CachedDecoder,
    order: tf.Tensor,
    logits: tf.Tensor,
    cache: Cache,
    choose: Choice,
    stop_ids=(),
    change: Change | None = None,
) -> DecodedTokens:
    """Writes all of an order, from the first token's logits [B, 1, V] and the context's cache on."""
    change = change or (lambda log_probs, _: log_probs)
    candidates, steps = decoder.candidates, shape_of(order)[1]
    stop_ids = tf.convert_to_tensor(stop_ids, tf.int32)

    def add(step, log_probs, written, cache):
        tokens, parents = choose(log_probs, written, step)
        batch, _, pieces = shape_of(log_probs)
        chosen = tokens + pieces * (tf.range(candidates) if parents is None else parents)
        chosen = tf.gather(tf.reshape(log_probs, [batch, -1]), chosen, batch_dims=1)
        if parents is not None:
            written, cache = written.follow(parents), cache.follow(parents)
        return written.add(step, tokens, chosen).finish(step, order, stop_ids), cache

    def body(step, written, cache):
        last, target = (tf.tile(order[:, number, None], [1, candidates]) for number in (step - 1, step))
        logits, cache = decoder.step(cache, written.tokens[:, :, step - 1], last, target[:, :, None])
        log_probs = change(log_probabilities(logits[:, :, 0]), written)
        return step + 1, *add(step, log_probs, written, cache)

    # At first all candidates are the same: one counts.
    counts = tf.range(candidates)[:, None] == 0
    nothing = DecodedTokens.nothing(order, candidates)
    log_probs = change(tf.tile(log_probabilities(logits), [1, candidates, 1]), nothing)  # [B, C, V]
    written, cache = add(0, tf.where(counts, log_probs, float("-inf")), nothing, cache)
    return tf.while_loop(
        lambda step, written, _: (step < steps) & tf.reduce_any(written.unfinished),
        body,
        (1, written, cache),
        parallel_iterations=1,
    )[1]


def best_continuations(log_probs: tf.Tensor, written: DecodedTokens, step: tf.Tensor):
    """Chooses, of all continuations of all candidates, the likeliest; finished ones stay as they are."""
    batch, _, pieces = shape_of(log_probs)
    candidates = written.tokens.shape[1]
    as_it_is = tf.where(tf.range(pieces) == PAD_ID, 0.0, float("-inf"))
    grown = written.totals[:, :, None] + tf.where(written.unfinished[:, :, None], log_probs, as_it_is)
    values, tokens = tf.math.top_k(grown, min(candidates, pieces))  # [B, C, C]
    values, tokens = tf.reshape(values, [batch, -1]), tf.reshape(tokens, [batch, -1])
    best = tf.math.top_k(values, candidates).indices
    return tf.gather(tokens, best, batch_dims=1), best // min(candidates, pieces)

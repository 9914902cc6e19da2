"""Writes texts piece by piece, as decoding_loop and infilling do in a graph.

Shapes: B batch, T tokens, P targets, G tokens to write, C candidates of a text, K guesses, V vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from xlnet_tf.generation.arrays import sampling
from xlnet_tf.generation.settings import Sampling, WritingRules
from xlnet_tf.text.special_tokens import PAD_ID


class Decoder(Protocol):
    """Predicts pieces for C candidates of each text, all of which continue the same context."""

    candidates: int

    def step(self, tokens: np.ndarray, positions: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Reads tokens [B, C] written last at positions [B, C]; predicts targets [B, C, P], -1 if empty.

        Returns log-probabilities [B, C, P, V].
        """

    def follow(self, parents: np.ndarray) -> None:
        """Lets each candidate continue its parent [B, C]."""


@dataclasses.dataclass
class DecodedTokens:
    """The tokens written so far: see decoding_loop.DecodedTokens."""

    tokens: np.ndarray
    log_probs: np.ndarray
    unfinished: np.ndarray

    @classmethod
    def nothing(cls, order: np.ndarray, candidates: int) -> "DecodedTokens":
        """Returns the state before the first step of an order [B, G]."""
        shape = len(order), candidates, order.shape[1]
        unfinished = np.tile(order[:, :1] >= 0, [1, candidates])
        return cls(np.full(shape, PAD_ID, np.int32), np.zeros(shape, np.float32), unfinished)

    @property
    def totals(self) -> np.ndarray:
        """[B, C], the log-probability of all that is written."""
        return self.log_probs.sum(axis=2)

    def follow(self, parents: np.ndarray) -> None:
        """Replaces each candidate by its parent [B, C]."""
        self.tokens = np.take_along_axis(self.tokens, parents[:, :, None], axis=1)
        self.log_probs = np.take_along_axis(self.log_probs, parents[:, :, None], axis=1)
        self.unfinished = np.take_along_axis(self.unfinished, parents, axis=1)

    def add(self, step: int, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Writes a token [B, C] to each candidate that is unfinished."""
        self.tokens[:, :, step] = np.where(self.unfinished, tokens, PAD_ID)
        self.log_probs[:, :, step] = np.where(self.unfinished, log_probs, 0)

    def finish(self, step: int, order: np.ndarray, stop_ids: np.ndarray) -> None:
        """Finishes candidates that a stop symbol ends, or their order, with the token of this step."""
        self.unfinished &= ~np.isin(self.tokens[:, :, step], stop_ids)
        last = step + 1 == order.shape[1]
        self.unfinished &= False if last else order[:, step + 1, None] >= 0


class Guesses(NamedTuple):
    """The likeliest pieces for each token to write: see infilling.Guesses."""

    tokens: np.ndarray
    log_probs: np.ndarray

    @classmethod
    def best(cls, log_probs: np.ndarray, order: np.ndarray, count: int) -> "Guesses":
        """Takes the `count` best of log-probabilities [B, G, V] of an order [B, G]."""
        values, tokens = sampling.top_k(log_probs, count)
        exists = order[:, :, None] >= 0
        is_piece = exists & (values > -np.inf)  # symbols are not
        return cls(np.where(is_piece, tokens, PAD_ID), np.where(exists, values, np.float32(0)))


class Filled(NamedTuple):
    """Joint fills of texts' gaps, and what makes them: see infilling.Filled."""

    fills: DecodedTokens
    apart: np.ndarray
    guesses: Guesses
    guesses_apart: Guesses


# See decoding_loop.Choice.
Choice = Callable[[np.ndarray, DecodedTokens, int], tuple[np.ndarray, np.ndarray | None]]
Change = Callable[[np.ndarray, DecodedTokens], np.ndarray]


def keep_rules(ids: np.ndarray, is_context: np.ndarray, rules: WritingRules) -> Change:
    """Returns what keeps the rules, given texts' contexts [B, T] and what is written."""
    context = np.where(is_context, ids, PAD_ID)[:, None]

    def change(log_probs, written):
        contexts = np.repeat(context, written.tokens.shape[1], axis=1)
        return sampling.apply_rules(log_probs, np.concatenate([contexts, written.tokens], axis=2), rules)

    return change


def sample(
    decoder: Decoder,
    order: np.ndarray,
    log_probs: np.ndarray,
    settings: Sampling,
    stop_ids: np.ndarray,
    change: Change | None = None,
) -> DecodedTokens:
    """Writes one candidate for each text; `log_probs` [B, V] are those of the order's first token."""
    draws = sampling.uniform_draws(settings.seeds, order.shape[1])

    def choose(log_probs, _, step):
        return sampling.choose(log_probs[:, 0], draws[:, step], settings)[:, None], None

    return write(decoder, order, log_probs, choose, stop_ids, change)


def write(
    decoder: Decoder,
    order: np.ndarray,
    log_probs: np.ndarray,
    choose: Choice,
    stop_ids: np.ndarray,
    change: Change | None = None,
) -> DecodedTokens:
    """Writes all of an order, from the first token's log-probabilities [B, V] on."""
    change = change or (lambda log_probs, _: log_probs)
    written = DecodedTokens.nothing(order, decoder.candidates)
    log_probs = change(np.repeat(log_probs[:, None], decoder.candidates, axis=1), written)
    log_probs[:, 1:] = -np.inf  # at first all candidates are the same: one counts
    for step in range(order.shape[1]):
        if step:
            if not written.unfinished.any():
                break
            here = np.repeat(order[:, None, step - 1 : step + 1], decoder.candidates, axis=1)  # [B, C, 2]
            found = decoder.step(written.tokens[:, :, step - 1], here[:, :, 0], here[:, :, 1:])
            log_probs = change(found[:, :, 0], written)
        tokens, parents = choose(log_probs, written, step)
        if parents is not None:
            log_probs = np.take_along_axis(log_probs, parents[:, :, None], axis=1)
            written.follow(parents)
            decoder.follow(parents)
        written.add(step, tokens, np.take_along_axis(log_probs, tokens[:, :, None], axis=2)[:, :, 0])
        written.finish(step, order, stop_ids)
    return written


def best_continuations(
    log_probs: np.ndarray, written: DecodedTokens, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses, of all continuations of all candidates, the likeliest; finished ones stay as they are."""
    del step
    batch, candidates, pieces = log_probs.shape
    as_it_is = np.where(np.arange(pieces) == PAD_ID, np.float32(0), np.float32(-np.inf))
    grown = written.totals[:, :, None] + np.where(written.unfinished[:, :, None], log_probs, as_it_is)
    count = min(candidates, pieces)
    values, tokens = sampling.top_k(grown, count)  # [B, C, C]
    _, best = sampling.top_k(values.reshape(batch, -1), candidates)
    return np.take_along_axis(tokens.reshape(batch, -1), best, axis=1), best // count


def fill_easiest_first(
    decoder: Decoder, order: np.ndarray, log_probs: np.ndarray, settings: Sampling
) -> tuple[DecodedTokens, np.ndarray]:
    """Fills gaps, of log-probabilities [B, G, V], always the one whose best piece is likeliest.

    Returns the result, one candidate per text, and the order of filling.
    """
    open_gaps, filled_order = order.copy(), np.full_like(order, -1)
    draws = sampling.uniform_draws(settings.seeds, order.shape[1])
    written, rows = DecodedTokens.nothing(order, 1), np.arange(len(order))
    for step in range(order.shape[1]):
        if step:
            if not written.unfinished.any():
                break
            last = written.tokens[:, :, step - 1], filled_order[:, step - 1, None]
            log_probs = decoder.step(*last, open_gaps[:, None])[:, 0]
        ease = np.where(open_gaps >= 0, log_probs.max(axis=2), -np.inf)
        easiest = ease.argmax(axis=1)
        of_easiest = log_probs[rows, easiest]  # [B, V]
        tokens = sampling.choose(of_easiest, draws[:, step], settings)
        written.add(step, tokens[:, None], of_easiest[rows, tokens][:, None])
        filled_order[:, step] = open_gaps[rows, easiest]
        open_gaps[rows, easiest] = -1
        written.unfinished = (open_gaps >= 0).any(axis=1, keepdims=True)
    return written, filled_order

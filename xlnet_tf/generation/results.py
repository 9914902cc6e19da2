"""What a language model answers: texts, and the probabilities of their pieces."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Continuation:
    """The text written after a prompt.

    Attributes:
        text: without the prompt.
        pieces: G of them.
        log_probabilities: float32 [G], of each piece given all before it, in nats, whatever the temperature.
        whole: the prompt as the model read it, then `text`.
    """

    text: str
    pieces: list[str]
    log_probabilities: np.ndarray
    whole: str

    @property
    def total(self) -> float:
        """The log-probability of all of it, in nats."""
        return float(self.log_probabilities.sum())


@dataclasses.dataclass(frozen=True)
class Filling:
    """A text with its gaps filled.

    Attributes:
        text: the whole.
        pieces: the G pieces, in the order in which the gaps were filled.
        probabilities: float32 [G], of each piece given the text and the gaps filled before it, as in
            p(New) p(York | New).
        alone: float32 [G], of each piece given the text alone, as in p(New) p(York).
        log_probability: that of all gaps together, in nats; for many gaps the probability can round to 0.
    """

    text: str
    pieces: list[str]
    probabilities: np.ndarray
    alone: np.ndarray
    log_probability: float

    @property
    def probability(self) -> float:
        """The probability of all gaps together."""
        return math.exp(self.log_probability)


class Guess(NamedTuple):
    """A piece for a gap, and its probability."""

    piece: str
    probability: float


@dataclasses.dataclass(frozen=True)
class FilledText:
    """The candidates for a text's gaps.

    Attributes:
        fillings: joint fillings of all gaps, best first.
        guesses: the likeliest pieces for each gap, in the order of filling, each given the best filling of
            those before it.
        guesses_alone: the same, each given the text alone.
    """

    fillings: list[Filling]
    guesses: list[list[Guess]]
    guesses_alone: list[list[Guess]]

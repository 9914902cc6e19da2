"""What a language model answers: texts, the probabilities of their pieces, and vectors."""

import dataclasses
import math
from typing import Any, NamedTuple

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
    """A text with its gaps filled by G pieces, in the order in which the gaps were filled.

    Attributes:
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
        guesses: for each gap, in the order of filling, the likeliest pieces given the best filling before it.
        guesses_alone: the same, each given the text alone.
    """

    fillings: list[Filling]
    guesses: list[list[Guess]]
    guesses_alone: list[list[Guess]]


@dataclasses.dataclass(frozen=True)
class TextScore:
    """How likely a text is.

    Attributes:
        log_probabilities: float32 [pieces], of each piece given those before it in the order, in nats.
        order: int [pieces], the numbers of the pieces in the order of their prediction.
    """

    pieces: list[str]
    log_probabilities: np.ndarray
    order: np.ndarray

    @property
    def total(self) -> float:
        """The log-probability of the text, in nats."""
        return float(self.log_probabilities.sum())


class Vectors(NamedTuple):
    """The vectors of texts, float32 arrays or tensors: mean and CLS [B, D], and tokens [B, T, D].

    The mean is without SEP and CLS; it is zero for an empty text, as tokens are for padding.
    """

    mean: Any
    cls: Any
    tokens: Any


@dataclasses.dataclass(frozen=True)
class TextVectors:
    """The vectors of N texts.

    Attributes:
        mean, cls: float32 [N, D], as in Vectors.
        tokens: for each text float32 [tokens, D], SEP and CLS last; None if not requested.
        pieces: for each text those tokens; None likewise.
    """

    mean: np.ndarray
    cls: np.ndarray
    tokens: list[np.ndarray] | None = None
    pieces: list[list[str]] | None = None

    def __getitem__(self, row: int) -> "TextVectors":
        """Returns the vectors of one text, without the axis N."""
        of_tokens = (None, None) if self.tokens is None else (self.tokens[row], self.pieces[row])
        return TextVectors(self.mean[row], self.cls[row], *of_tokens)

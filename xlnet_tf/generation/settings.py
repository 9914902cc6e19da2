"""Settings of a language model's answers and their checks: sampling, lengths, batches; no TensorFlow."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import Self

from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.schema import is_whole
from xlnet_tf.text.sorted_windows import sorted_windows
from xlnet_tf.text.special_tokens import EOP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

LONGEST = 32_768  # tokens of a text, those that are written included
_UNSEEN = 3  # seconds without a progress bar
_TOGETHER = 8 * 1024  # tokens of texts that are read together

_MOST_ROWS = 1 << 20  # rows of a seed; so rows of neighbouring seeds never overlap
_MOST_SEEDS = 1 << 43

# Between these a temperature divides logits without overflow; below the first, the likeliest piece is taken.
COLDEST, HOTTEST = 0.001, 100.0
HARDEST = 10  # penalty of a repetition
MOST_CANDIDATES = 256  # of beam search, and guesses for a gap: memory and time grow with them


class Sampling(NamedTuple):
    """How the B rows of a batch are sampled: arrays, or tensors in a graph."""

    seeds: Any  # [B] integers; equal seeds, equal draws, whatever the device and the compiler
    temperature: Any  # [B] float32, by which logits are divided; 0 takes the likeliest piece
    top_k: Any  # [B] int32, how many of the likeliest pieces to draw from, and their equals; 0: all
    # [B] float32 in (0, 1]: draws from the fewest likeliest pieces that have this much probability
    top_p: Any

    def take(self, rows: np.ndarray) -> Self:
        return self._make(values[rows] for values in self)


class WritingRules(NamedTuple):
    """What may be written, for all texts alike: arrays, or tensors in a graph."""

    forbidden: Any  # [F] int32, pieces that are never written
    # float32, by which the log-probability of each piece that a text has already, in its prompt or what was
    # written, is multiplied; 1: none
    repetition_penalty: Any


def writing_rules(
    tokenizer: XLNetTokenizer, forbid: Sequence[str], repetition_penalty: float, stop: Sequence[str] = ()
) -> WritingRules:
    """Checks rules, which must let each piece of `stop` be written; returns them as arrays."""
    is_right = is_number(repetition_penalty) and 1 <= repetition_penalty <= HARDEST
    expected = f"a number from 1, for none, to {HARDEST}"
    check_range("repetition_penalty", repetition_penalty, is_right, expected)
    forbidden = piece_ids("forbid", forbid, tokenizer)
    if both := [piece for piece in stop if piece in forbid]:
        raise UserError(f"forbid has {both[0]!r}, and so has stop: leave it out of one of them")
    if len({*range(EOP_ID), *forbidden.tolist()}) == tokenizer.vocab_size:
        raise UserError("forbid has all pieces that are ever written; expected fewer")
    return WritingRules(forbidden, np.float32(repetition_penalty))


def piece_ids(name: str, pieces: Sequence[str], tokenizer: XLNetTokenizer, least: int = 0) -> np.ndarray:
    """Returns the ids, from `least` on, of pieces of a setting's list: int32."""
    if isinstance(pieces, str) or not isinstance(pieces, Iterable):
        raise UserError(f"{name} is {pieces!r}; expected a list of pieces, such as {[pieces or '.']!r}")
    ids = tokenizer.get_vocab() if pieces else {}
    for piece in pieces:
        if not isinstance(piece, str) or ids.get(piece, -1) < least:
            kind = " that is ever written" * bool(least)
            raise UserError(
                f"{name} has {piece!r}, which is not a piece of the vocabulary{kind}; a word begins with '▁'"
            )
    return np.array([ids[piece] for piece in pieces], np.int32)


def same_for_all(count: int, temperature: float, top_k: int, top_p: float, seed: int) -> Sampling:
    """Returns the same settings for `count` rows, as arrays, but draws of their own."""
    check_range(
        "temperature",
        temperature,
        is_number(temperature) and 0 <= temperature <= HOTTEST,
        f"0, to take the likeliest piece, to {HOTTEST}",
    )
    check_range("top_k", top_k, is_whole(top_k) and top_k >= 0, "a whole number: 0, for all pieces, or more")
    check_range("top_p", top_p, is_number(top_p) and 0 < top_p <= 1, "more than 0, to 1")
    is_seed = is_whole(seed) and abs(seed) < _MOST_SEEDS
    check_range("seed", seed, is_seed, f"a whole number from {1 - _MOST_SEEDS} to {_MOST_SEEDS - 1}")
    return Sampling(
        seeds=int(seed) * _MOST_ROWS + np.arange(count),
        temperature=np.full(count, temperature if temperature >= COLDEST else 0, np.float32),
        top_k=np.full(count, min(top_k, np.iinfo(np.int32).max), np.int32),
        top_p=np.full(count, top_p, np.float32),
    )


def is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def is_permutation(numbers: object, count: int) -> bool:
    """Returns whether a setting is a list that has each whole number from 0 to count - 1 once."""
    numbers = numbers.tolist() if isinstance(numbers, np.ndarray) else numbers
    return (
        isinstance(numbers, Sequence)
        and all(map(is_whole, numbers))
        and sorted(numbers) == list(range(count))
    )


def check_range(name: str, value: object, is_right: bool, expected: str):
    if not is_right:
        raise UserError(f"{name} is {short_repr(value)}; expected {expected}")


def check_text_lengths(name: str, lengths: Sequence[int], new_tokens: int = 0, longest: int = LONGEST):
    """Raises UserError if there is no text, or one is too long, and names it."""
    if not lengths:
        raise UserError(f"{name} is empty; expected at least one text.")
    for row, length in enumerate(lengths):
        if length + new_tokens > longest:
            after = f", and {new_tokens:,} are to follow" if new_tokens else ""
            longer = "" if longest == LONGEST else " The weights that were exported read longer texts."
            raise UserError(
                f"{name}[{row}] has {length:,} pieces{after}; expected at most {longest:,} in all. Shorten "
                f"the text, or split it.{longer}"
            )


def check_layer(layer: int, layers: int) -> None:
    """Raises UserError if a model with this number of layers lacks the layer."""
    if not is_whole(layer) or not -layers <= layer < layers:
        raise UserError(f"layer is {layer!r}; the model has layers 0 to {layers - 1}, and -1 is the last.")


def by_length(lengths: Sequence[int], batch_size: int) -> Iterator[np.ndarray]:
    """Deals rows into batches of similar length; long rows come in smaller batches.

    It shows progress if it takes more than a few seconds.
    """
    check_range(
        "batch_size", batch_size, is_whole(batch_size) and batch_size >= 1, "a whole number of at least 1"
    )
    windows = sorted_windows(
        lengths, int, lambda longest: min(batch_size, max(1, _TOGETHER // max(1, longest)))
    )
    with ProgressBar(total=len(lengths), unit="text", delay=_UNSEEN, leave=False) as bar:
        for _, batches in windows:
            for rows in batches:
                yield np.array(rows[::-1])
                bar.update(len(rows))

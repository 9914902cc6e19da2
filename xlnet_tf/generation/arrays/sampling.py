"""Draws and chooses pieces as generation.sampling does, from the same random numbers.

Shapes: B rows, V vocabulary.
"""

import numpy as np

from xlnet_tf.generation.settings import Sampling, WritingRules

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def uniform_draws(seeds: np.ndarray, count: int) -> np.ndarray:
    """Draws [B, count] float32 from [0, 1), as sampling.uniform_draws. Source: SplitMix64 (Steele, 2014)."""
    bits = np.asarray(seeds).astype(np.uint64)[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    for shift, factor in _ROUNDS:
        bits = (bits ^ (bits >> shift)) * factor
    bits ^= bits >> np.uint64(31)
    return (bits >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def apply_rules(log_probs: np.ndarray, texts: np.ndarray, rules: WritingRules) -> np.ndarray:
    """Normalizes log_probs [B, C, V] anew, once the rules are kept; texts [B, C, T] are PAD where empty."""
    if not len(rules.forbidden) and rules.repetition_penalty == 1:
        return log_probs
    factors = np.ones_like(log_probs)
    np.put_along_axis(factors, texts, rules.repetition_penalty, axis=2)
    penalized = log_probs * factors
    penalized[:, :, rules.forbidden] = -np.inf
    penalized -= penalized.max(axis=2, keepdims=True)
    return penalized - np.log(np.exp(penalized).sum(axis=2, keepdims=True))


def choose(log_probs: np.ndarray, draws: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Chooses a piece for each row, [B] int32, by log_probs [B, V] and draws [B] in [0, 1)."""
    chosen = log_probs.argmax(axis=1).astype(np.int32)
    for row in np.flatnonzero(sampling.temperature > 0):
        probabilities = _softmax(log_probs[row] / sampling.temperature[row])
        if sampling.top_k[row] > 0:
            equal = np.ones_like(probabilities)
            probabilities = _heaviest(probabilities, equal, np.float32(sampling.top_k[row]))
        if sampling.top_p[row] < 1:
            wanted = sampling.top_p[row] * probabilities.sum()
            probabilities = _heaviest(probabilities, probabilities, wanted)
        # The inverse of the distribution function, at the draw.
        cumulative = np.cumsum(probabilities)
        chosen[row] = np.count_nonzero(cumulative <= draws[row] * cumulative[-1])
    return chosen


def top_k(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds the largest values of the last axis and their indices; the first of equals is first."""
    rows = values.reshape(-1, values.shape[-1])
    bounds = np.partition(rows, -count, axis=1)[:, -count]
    indices = np.empty([len(rows), count], np.int32)
    for row, bound, best in zip(rows, bounds, indices):
        reaching = np.flatnonzero(row >= bound)
        best[:] = reaching[np.argsort(-row[reaching], kind="stable")[:count]]
    indices = indices.reshape(*values.shape[:-1], count)
    return np.take_along_axis(values, indices, axis=-1), indices


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def _heaviest(probabilities: np.ndarray, weights: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Keeps the fewest likeliest pieces [V] whose weights sum up to `wanted`, and their equals."""
    order = np.argsort(-probabilities)
    enough = np.cumsum(weights[order]) >= wanted
    if not enough.any():
        return probabilities
    bound = probabilities[order[enough.argmax()]]
    return np.where(probabilities >= bound, probabilities, np.float32(0))

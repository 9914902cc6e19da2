"""Relative positions by rotation instead of by shifting: the form for TPUs.

A score by position is a sum over frequencies w of a sin(w (i - j)) + b cos(w (i - j)), where a and b come
from the query at i. By the sums of sine and cosine it is also the product of two vectors: one of i, which is
[a, b] turned by the angles w i, and one of j, [cos(w j), sin(w j)]. So it takes one product of matrices, and
no score by distance has to be moved to its key, which is what a TPU is slow at.

D/2 frequencies would make that product long, but far fewer will do. The low ones lie much closer together
than texts of a bounded length can distinguish, so each is a sum of a few evenly spaced ones, as near as
float32 has the angles. The weights of those sums are folded into the projection of the positions.

Shapes: as in attention.py; F frequencies.
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from typing_extensions import Self

from xlnet_tf.layers.kernels.matmul import matmul_heads

# The evenly spaced frequencies are those of a period that is so much longer than all distances, and a few
# more than up to the highest one that they replace: they match what continues smoothly beyond the ends.
# Long texts and wide models need the least of both. Each row suffices for more than the one before; the last
# one does for all widths of 2 to 1,536 and distances of up to 4,096 that were tried.
_STRETCHES_AND_MARGINS = ((1.1, 6), (1.2, 6), (1.3, 8), (1.5, 12))
_MAX_ERROR = 3e-6  # of a sine or a cosine, well below what float32 leaves of the angles of long texts
_CUTOFF = 1e-6  # cutoff of singular values; keeps the weights of the sums about 1


class QueryRotation(NamedTuple):
    """The angles of queries, [B or 1, 1, Q, 2 F]; rows read backward have the sign that negates distances."""

    cosine: tf.Tensor
    sine: tf.Tensor


class RotatedKeys(NamedTuple):
    """What a layer scores rotated queries with: products with the cosine and the sine of their angles.

    `cosine` and `sine` [1, N, H, 2 F] project positions; `keys` [1, 1, K, 2 F] are those of PositionRotation.
    """

    cosine: tf.Tensor
    sine: tf.Tensor
    keys: tf.Tensor


@functools.lru_cache(maxsize=16)
def fewer_frequencies(d_model: int, reach: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds few frequencies whose sums are the encoding's sinusoids, for distances up to `reach` tokens.

    Returns them [F], and the weights of the sums for each sine and each cosine, [F, D/2], as float32.
    """
    wanted = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # descending
    distances = np.arange(reach + 1)[:, None]
    for stretch, margin in _STRETCHES_AND_MARGINS:
        frequencies = _highest_and_spaced(wanted, np.pi / (stretch * reach), margin)
        sums, errors = zip(
            *(_fit(wave(distances * frequencies), wave(distances * wanted)) for wave in (np.sin, np.cos)),
            strict=True,
        )
        if max(errors) <= _MAX_ERROR:
            break
    return frequencies.astype(np.float32), *sums


def _highest_and_spaced(wanted: np.ndarray, step: float, margin: int) -> np.ndarray:
    """Returns the highest frequencies and evenly spaced ones below, divided where both are fewest in all."""

    def spaced(highest: int) -> int:
        return int(np.ceil(wanted[highest] / step)) + margin if highest < len(wanted) else 0

    highest = min(range(len(wanted) + 1), key=lambda count: count + spaced(count))
    return np.append(wanted[:highest], np.arange(spaced(highest)) * step)


def _fit(waves: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the weights of the sums of waves that come nearest to those wanted, and the largest error."""
    weights = np.linalg.lstsq(waves, wanted, rcond=_CUTOFF)[0]
    return weights.astype(np.float32), np.abs(waves @ weights - wanted).max()


class PositionRotation(NamedTuple):
    """The positions of a step.

    Attributes:
        sines, cosines: [F, D/2], the weights of `fewer_frequencies`, of frequencies [F].
        keys: [K, 2 F], what scores are products with.
        first: position of the segment's first token; the keys lie around 0.
        direction: [B], +1 or -1, or None when all rows are read forward.
    """

    frequencies: tf.Tensor
    sines: tf.Tensor
    cosines: tf.Tensor
    keys: tf.Tensor
    first: float
    direction: tf.Tensor | None

    @classmethod
    def of_step(cls, d_model: int, query_len: int, key_len: int, direction: tf.Tensor | None) -> Self:
        """Places the keys around 0, where the angles' rounding is least."""
        frequencies, sines, cosines = map(tf.constant, fewer_frequencies(d_model, key_len))
        positions = tf.range(key_len, dtype=tf.float32) - key_len // 2
        angles = positions[:, None] * frequencies  # [K, F]
        keys = tf.concat([tf.cos(angles), tf.sin(angles)], axis=1)
        return cls(frequencies, sines, cosines, keys, float(key_len - query_len - key_len // 2), direction)

    def rotate_queries(self, positions: tf.Tensor) -> QueryRotation:
        """Returns the angles of queries at positions [B or 1, Q] of the segment."""
        angles = (tf.cast(positions, tf.float32) + self.first)[..., None] * self.frequencies  # [B, Q, F]
        cosine, sine = tf.cos(angles)[:, None], tf.sin(angles)[:, None]
        sign = 1.0 if self.direction is None else tf.cast(self.direction, tf.float32)[:, None, None, None]
        return QueryRotation(
            tf.concat([cosine * tf.ones_like(sign), cosine * sign], axis=-1),
            tf.concat([sine * sign, sine * tf.ones_like(sign)], axis=-1),
        )

    def project(self, weights: tf.Tensor, dtype: tf.DType) -> RotatedKeys:
        """Folds the projection of positions [D, N, H] into the sums of frequencies."""
        odd, even = tf.split(tf.cast(weights, dtype), 2, axis=0)  # [D/2, N, H], of sines and of cosines
        odd = tf.einsum("fd,dnh->nhf", tf.cast(self.sines, dtype), odd)
        even = tf.einsum("fd,dnh->nhf", tf.cast(self.cosines, dtype), even)
        return RotatedKeys(
            tf.concat([even, -odd], axis=-1)[None],
            tf.concat([odd, even], axis=-1)[None],
            tf.cast(self.keys, dtype)[None, None],
        )


def rotated_scores(queries: tf.Tensor, keys: RotatedKeys, rotation: QueryRotation) -> tf.Tensor:
    """Scores every key by its distance from each of the queries [B, N, Q, H]: [B, N, Q, K]."""
    dtype = queries.dtype
    rotated = matmul_heads(queries, keys.cosine) * tf.cast(rotation.cosine, dtype)
    rotated += matmul_heads(queries, keys.sine) * tf.cast(rotation.sine, dtype)  # [B, N, Q, 2 F]
    return matmul_heads(rotated, keys.keys, transpose_b=True)

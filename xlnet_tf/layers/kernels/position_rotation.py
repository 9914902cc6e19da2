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
_STRETCH = 1.5
_MARGIN = 12
_CUTOFF = 1e-6  # of singular values; keeps the weights of the sums about 1


class QueryRotation(NamedTuple):
    """The angles of a stream's queries.

    Attributes:
        cosine, sine: [B or 1, 1, Q, 2 F], for rows read backward with the sign that negates distances.
    """

    cosine: tf.Tensor
    sine: tf.Tensor


class RotatedKeys(NamedTuple):
    """What a layer scores rotated queries with.

    Attributes:
        cosine, sine: [1, N, H, 2 F], the layer's projection of positions. Queries times them are multiplied
            by the cosine and the sine of their angles.
        keys: [1, 1, K, 2 F], as in PositionRotation.
    """

    cosine: tf.Tensor
    sine: tf.Tensor
    keys: tf.Tensor


@functools.lru_cache(maxsize=16)
def fewer_frequencies(d_model: int, reach: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds few frequencies whose sums are the encoding's sinusoids, for distances of up to `reach` tokens.

    Returns:
        The frequencies [F], and the weights of the sums: for each of the D/2 sines, and for each of the
        cosines, those of the F sines, or cosines, that make it: [F, D/2] twice. All float32.
    """
    wanted = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # falling
    step = np.pi / (_STRETCH * reach)

    def spaced(kept: int) -> int:
        """Returns how many evenly spaced ones stand for all but the first, highest, ones, which are kept."""
        return int(np.ceil(wanted[kept] / step)) + _MARGIN if kept < len(wanted) else 0

    kept = min(range(len(wanted) + 1), key=lambda count: count + spaced(count))
    grid = np.arange(spaced(kept)) * step
    distances = np.arange(reach + 1)[:, None]

    def sums(wave) -> np.ndarray:
        weights = np.eye(kept + len(grid), len(wanted))
        weights[kept:, kept:] = np.linalg.lstsq(
            wave(distances * grid), wave(distances * wanted[kept:]), rcond=_CUTOFF
        )[0]
        return weights.astype(np.float32)

    return np.append(wanted[:kept], grid).astype(np.float32), sums(np.sin), sums(np.cos)


class PositionRotation(NamedTuple):
    """The positions of a step.

    Attributes:
        frequencies: [F].
        sines, cosines: [F, D/2], the weights of `fewer_frequencies`.
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
    """Scores every key by its distance from queries [B, N, Q, H]: [B, N, Q, K]."""
    dtype = queries.dtype
    rotated = matmul_heads(queries, keys.cosine) * tf.cast(rotation.cosine, dtype)
    rotated += matmul_heads(queries, keys.sine) * tf.cast(rotation.sine, dtype)  # [B, N, Q, 2 F]
    return matmul_heads(rotated, keys.keys, transpose_b=True)

"""Relative positions: distances and their sinusoid encoding.

Queries are numbered i = 0..T-1 in the segment; keys j = 0..K-1 are the memory's M and then the
segment's T. Their distance is M + i - j. A table of distances K, K-1, ... lists, for a query at i,
its keys' distances as the K entries that begin at entry T - i.
"""

from typing import NamedTuple

import tensorflow as tf
from typing_extensions import Self


class RelativePositions(NamedTuple):
    """Encoding of the distances K..0, from which all R of a step follow.

    A row of the batch that is read backward has all its distances negated. Sines are odd and cosines
    even, so one table of the distances K..0 serves both directions, and keys ahead of their query: the
    encoding of a distance is [sine, cosine], that of the negated one [-sine, cosine].

    Attributes:
        sine: [K + 1, D/2]; None with `keys`.
        cosine: [K + 1, D/2]; likewise.
        ahead: how many distances, -1 and less, follow those of the table.
        direction: [B], +1 forward and -1 backward, or None when all rows are read forward.
        keys: [N, R, H], the encoding as a layer's attention projects it, if that is known already.
    """

    sine: tf.Tensor | None = None
    cosine: tf.Tensor | None = None
    ahead: int | tf.Tensor = 0
    direction: tf.Tensor | None = None
    keys: tf.Tensor | None = None

    @classmethod
    def of_step(
        cls, d_model: int, query_len, key_len, attention_type: str, clamp_len: int, direction=None
    ) -> Self:
        """Encodes the distances of a segment's queries from keys.

        The first distance, K, belongs to no pair; it is there because the original has it.

        Args:
            query_len: T, length of the segment.
            key_len: K, memory and segment together.
            attention_type: "bi" (keys on both sides: distances K..-T+1, R = K + T) or "uni" (keys up to the
                query only: K..0, R = K + 1).
            clamp_len: largest distance that is distinguished, in tokens; -1 for no limit.

        Source: paper section 2.4 with Transformer-XL appendix B; modeling.py relative_positional_encoding.
        """
        distances = tf.cast(tf.range(key_len, -1, -1), tf.float32)
        if clamp_len > 0:
            distances = tf.minimum(distances, float(clamp_len))
        sine, cosine = sinusoid_encoding(distances, d_model)
        ahead = query_len - 1 if attention_type == "bi" else 0
        return cls(sine, cosine, ahead, direction)

    def encoding(self) -> tf.Tensor:
        """Writes out the encoding of all distances: [1, R, D], with directions [B, R, D]."""
        last = tf.shape(self.sine)[0] - 1  # distance 0
        near = tf.reverse(tf.range(last - self.ahead, last), [0])  # distances 1, 2, ...
        sine = tf.concat([self.sine, -tf.gather(self.sine, near)], axis=0)[None]
        cosine = tf.concat([self.cosine, tf.gather(self.cosine, near)], axis=0)[None]
        if self.direction is not None:
            sine *= tf.cast(self.direction, sine.dtype)[:, None, None]
            cosine = tf.broadcast_to(cosine, tf.shape(sine))
        return tf.concat([sine, cosine], axis=-1)


def sinusoid_encoding(distances: tf.Tensor, d_model: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Encodes distances [R] by sines and cosines of D/2 wavelengths, [R, D/2] each, in float32.

    bfloat16 would merge distances: at 512 tokens only 769 of 1024 stay apart.
    """
    wavelength_index = tf.range(0, d_model, 2, dtype=tf.float32)
    frequencies = 1.0 / tf.pow(10000.0, wavelength_index / d_model)  # [D/2]
    angles = distances[:, None] * frequencies[None, :]
    return tf.sin(angles), tf.cos(angles)


def of_shorter(table: tf.Tensor, length, attention_type: str = "bi") -> tf.Tensor:
    """Picks from a table [N, R, H] the distances in a shorter text, without memory: [N, R', H]."""
    entries = tf.shape(table)[1]
    longest, after = (entries // 2, length) if attention_type == "bi" else (entries - 1, 1)
    # tf.slice rather than indexing: it refuses to begin before the first row.
    return tf.slice(table, [0, longest - length, 0], [-1, length + after, -1])

"""text/windows.py in graph: the overlapping windows of a batch of passages, all in one list."""

import math
from typing import NamedTuple

import tensorflow as tf


class PassageWindows(NamedTuple):
    """W windows, those of a passage one after another; int32 [W].

    Attributes:
        row: number of the passage.
        number: of the window among its passage's.
        count: windows of its passage.
        tokens: of its passage.
        room: most tokens of a window of its passage.
        step: tokens from one window's begin to the next one's.
    """

    row: tf.Tensor
    number: tf.Tensor
    count: tf.Tensor
    tokens: tf.Tensor
    room: tf.Tensor
    step: tf.Tensor

    @property
    def first(self) -> tf.Tensor:
        """The first token, counted in the passage."""
        return self.number * self.step

    @property
    def length(self) -> tf.Tensor:
        """How many tokens they have."""
        return tf.minimum(self.room, self.tokens - self.first)

    def slice(self, begin: tf.Tensor, end: tf.Tensor) -> "PassageWindows":
        """Returns the windows from `begin` to `end` (exclusive)."""
        return PassageWindows(*(values[begin:end] for values in self))


def split_windows(tokens: tf.Tensor, room: tf.Tensor, stride: int) -> PassageWindows:
    """Cuts passages into windows, as text.windows.split_windows cuts each of them.

    Args:
        tokens: int32 [N], lengths of the passages.
        room: int32 [N], most tokens of their windows, at least 1.
        stride: tokens from one window's begin to the next one's; at most `room` is used.

    Returns:
        The windows, at least one for each passage.
    """
    step = tf.minimum(stride, room)
    beyond = tf.maximum(tokens - room, 0)  # the first window
    count = 1 + (beyond + step - 1) // step
    number = tf.ragged.range(count)
    row = tf.cast(number.value_rowids(), tf.int32)
    return PassageWindows(
        row, number.flat_values, *(tf.gather(values, row) for values in (count, tokens, room, step))
    )


def shows_best(windows: PassageWindows, positions: tf.Tensor, most_room: int, stride: int) -> tf.Tensor:
    """Returns which tokens a window shows best, as text.windows.best_windows chooses among a passage's.

    Args:
        windows: W of them.
        positions: int32 [W, K], tokens of each window, counted in it.
        most_room: the largest room of a window.
        stride: as the windows were split.

    Returns:
        bool [W, K].
    """
    reach = math.ceil(most_room / stride) - 1  # windows before or after that may hold the same token
    number, count, tokens, room, step = (
        values[:, None, None]
        for values in (windows.number, windows.count, windows.tokens, windows.room, windows.step)
    )
    number += tf.range(-reach, reach + 1)  # [W, 1, 2 * reach + 1]
    first = number * step
    length = tf.minimum(room, tokens - first)
    left = (windows.first[:, None] + positions)[:, :, None] - first
    right = length - 1 - left
    held = (number >= 0) & (number < count) & (left >= 0) & (right >= 0)
    # In float64, as there, so that ties are the same ones.
    context = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(length, tf.float64)
    context = tf.where(held, context, -1.0)
    mine = context[:, :, reach : reach + 1]
    return tf.reduce_all(context[:, :, :reach] < mine, -1) & tf.reduce_all(context[:, :, reach:] <= mine, -1)

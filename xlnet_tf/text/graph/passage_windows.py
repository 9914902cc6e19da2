"""text/windows.py in graph: the overlapping windows of a batch of passages, all in one list."""

import math
from typing import NamedTuple

import tensorflow as tf

from xlnet_tf.text.graph.packing import pack
from xlnet_tf.text.packing import PAD_SEGMENT
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.windows import NUM_SPECIAL


class PassageWindows(NamedTuple):
    """W windows, those of a passage one after another; int32 [W]."""

    row: tf.Tensor  # number of the passage
    number: tf.Tensor
    count: tf.Tensor
    tokens: tf.Tensor
    room: tf.Tensor  # most tokens of a window of its passage
    step: tf.Tensor  # tokens from one window's begin to the next one's

    @property
    def first(self) -> tf.Tensor:
        """The first token, counted in the passage."""
        return self.number * self.step

    @property
    def length(self) -> tf.Tensor:
        return tf.minimum(self.room, self.tokens - self.first)

    def slice(self, begin: tf.Tensor, end: tf.Tensor) -> "PassageWindows":
        return PassageWindows(*(values[begin:end] for values in self))


def split_windows(tokens: tf.Tensor, room: tf.Tensor, stride: int) -> PassageWindows:
    """Cuts passages of lengths [N] into windows of at most `room` [N] tokens (see text.windows)."""
    step = tf.minimum(stride, room)
    beyond = tf.maximum(tokens - room, 0)  # the first window
    count = 1 + (beyond + step - 1) // step
    number = tf.ragged.range(count)
    row = tf.cast(number.value_rowids(), tf.int32)
    return PassageWindows(
        row, number.flat_values, *(tf.gather(values, row) for values in (count, tokens, room, step))
    )


def pack_segments(
    pieces: tf.RaggedTensor, questions: tf.RaggedTensor, seq_len: int, segment_len: int
) -> dict[str, tf.Tensor]:
    """Packs windows and questions [W, (pieces)] that are read in segments (see text.windows.pack_window)."""
    windows, segments = pieces.nrows(out_type=tf.int32), seq_len // segment_len
    lengths, question_lengths = (tf.cast(ids.row_lengths()[:, None], tf.int32) for ids in (pieces, questions))
    room = segment_len - NUM_SPECIAL - question_lengths  # [W, 1]
    length = tf.clip_by_value(lengths - tf.range(segments) * room, 0, room)  # [W, segments]
    parts = tf.RaggedTensor.from_row_lengths(
        pieces.flat_values, tf.cast(tf.reshape(length, [-1]), questions.row_splits.dtype), validate=False
    )
    questions = tf.gather(questions, tf.repeat(tf.range(windows), segments))
    packed = pack(parts, questions, seq_len=segment_len, padding="right")
    is_empty = tf.reshape((length == 0) & (tf.range(segments) > 0), [-1, 1])
    padding = {"input_word_ids": PAD_ID, "input_mask": 0, "input_type_ids": PAD_SEGMENT}
    return {
        name: tf.reshape(tf.where(is_empty, padding[name], values), [windows, seq_len])
        for name, values in packed.items()
    }


def window_tokens(answer_mask: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Returns the tokens, numbered in their window, at positions [W, ...] of packed windows.

    CLS has the window's length as its number, everything else T. `answer_mask` is that of text.windows.
    """
    mask = tf.cast(answer_mask, tf.int32)
    tokens = tf.where(mask > 0, tf.cumsum(mask, axis=1, exclusive=True), tf.shape(mask)[1])
    return tf.gather(tokens, positions, batch_dims=1)


def shows_best(windows: PassageWindows, positions: tf.Tensor, most_room: int, stride: int) -> tf.Tensor:
    """Returns which tokens a window shows best, bool [W, K] (see text.windows.best_windows)."""
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
    is_inside = (number >= 0) & (number < count) & (left >= 0) & (right >= 0)
    # In float64, as there, so that ties are the same ones.
    context = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(length, tf.float64)
    context = tf.where(is_inside, context, -1.0)
    mine = context[:, :, reach : reach + 1]
    return tf.reduce_all(context[:, :, :reach] < mine, -1) & tf.reduce_all(context[:, :, reach:] <= mine, -1)

"""text/word_windows.py in graph: the windows of whole words over a batch of texts, all in one list."""

from typing import NamedTuple

import tensorflow as tf


class WordWindows(NamedTuple):
    """N windows, those of a text one after another; int64 [N], words counted through all texts.

    A window reads the words from start to stop, and alone predicts those from predict_start to predict_stop.
    """

    start: tf.Tensor
    stop: tf.Tensor
    predict_start: tf.Tensor
    predict_stop: tf.Tensor

    def slice(self, begin: tf.Tensor, end: tf.Tensor) -> "WordWindows":
        return WordWindows(*(values[begin:end] for values in self))


def word_windows(lengths: tf.Tensor, row: tf.Tensor, room: int, stride: int) -> WordWindows:
    """Lays windows over texts (see text.word_windows.windows); none over a text without words."""
    # Positions are counted through all texts: searches continue into the next text, and are cut at its begin.
    stops = tf.cumsum(lengths)
    starts = stops - lengths
    limits = tf.searchsorted(row, row, side="right", out_type=tf.int64)  # [W], the end of each word's text
    lasts = tf.minimum(tf.searchsorted(stops, starts + room, side="right", out_type=tf.int64), limits)
    after = tf.maximum(
        tf.searchsorted(starts, starts + stride, out_type=tf.int64), tf.range(1, tf.size(row, tf.int64) + 1)
    )
    is_head = tf.concat([[True], row[1:] != row[:-1]], 0)[: tf.size(row)]
    firsts = _chains(tf.where(is_head)[:, 0], limits, lasts, tf.minimum(after, lasts))

    last, limit, head = (tf.gather(values, firsts) for values in (lasts, limits, is_head))
    # Words before the middle of two windows' overlap belong to the first; their position is start plus stop.
    stops_before = tf.concat([[0], tf.gather(stops, last - 1)], 0)[:-1]
    middle = tf.gather(starts, firsts) + stops_before
    border = tf.minimum(tf.searchsorted(starts + stops, middle, side="right", out_type=tf.int64), limit)
    begin = tf.where(head, firsts, border)
    end = tf.where(tf.concat([head, [True]], 0)[1:], limit, tf.concat([begin, [0]], 0)[1:])
    windows = WordWindows(firsts, last, begin, end)
    predicts = tf.where(begin < end)[:, 0]
    return WordWindows(*(tf.gather(values, predicts) for values in windows))


def _chains(heads: tf.Tensor, limits: tf.Tensor, lasts: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """Returns the first words of all windows, ascending, given each text's first word as a head.

    For a word, `limits` are its text's end, `lasts` a window's from it on, `after` the next one's begin.
    """
    starts = tf.TensorArray(tf.int64, size=0, dynamic_size=True, element_shape=[None], infer_shape=False)
    starts = starts.write(0, heads[:0])  # eagerly, an empty array cannot be concatenated

    def step(index, firsts, starts):
        continues = tf.where(tf.gather(lasts, firsts) < tf.gather(limits, firsts))[:, 0]
        return index + 1, tf.gather(after, tf.gather(firsts, continues)), starts.write(index, firsts)

    _, _, starts = tf.while_loop(
        lambda index, firsts, starts: tf.size(firsts) > 0,
        step,
        (tf.constant(1), heads, starts),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), None),
    )
    return tf.sort(starts.concat())

"""Draws targets and factorization orders anew while training reads: the builder's rules, on whole batches.

The draws of a record follow from (seed, epoch, stream, segment) alone, so a run resumes exactly, and they do
not depend on the number of hosts, replicas and rows.
"""

import math

import numpy as np
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.records import ranks, spans
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.splitmix64 import hashed_all, random_bits
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID

_PURPOSE = 0x6F6E6C696E65  # distinguishes these draws from others of the same seed
_BITS = 30
_FAR = 1 << 29  # words; contexts of a huge mask_alpha are cut here, before int32 overflows
_NO_SPAN = 1 << _BITS  # a token's key if it is outside of spans: these come last


class OnlineSampler:
    """Draws what the builder's `sample_segment_targets` and `sample_ranks` would, by a set's settings.

    For a set with the original's targets (`compat`) it draws this library's: whole words, always num_predict.
    """

    def __init__(self, manifest: Manifest, word_starts: np.ndarray, seed: int):
        if manifest.objective == "autoregressive":
            raise UserError(
                f"permutation is online, but {manifest.folder} is for the autoregressive objective, which "
                "has nothing to draw: every token is a target, in natural order. Use precomputed"
            )
        if len(word_starts) != manifest.tokenizer["vocab_size"]:
            raise UserError(
                f"{manifest.tokenizer_path} has {len(word_starts)} pieces, expected "
                f"{manifest.tokenizer['vocab_size']} by the manifest: copy the right tokenizer there"
            )
        self._manifest = manifest
        self._word_starts = word_starts
        self._seed = seed
        reuse_len = manifest.reuse_len
        self._lengths = (reuse_len, manifest.seq_len - reuse_len)
        self._goals = spans.split_num_predict(manifest.num_predict, manifest.seq_len, reuse_len)
        if manifest.objective == "permutation":
            ranks.check_perm_size(manifest.perm_size, manifest.seq_len, reuse_len)
        self._words_per_span_word = manifest.mask["alpha"] / manifest.mask["beta"]

    def __call__(
        self, ids: tf.Tensor, direction: tf.Tensor, epoch: tf.Tensor, stream: tf.Tensor, segment: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws target_positions int16 [B, P], ascending, and permutation_rank int16 [B, T].

        `ids` are [B, T], `direction` +1 or -1; epoch, stream and its segment [B] decide what is drawn.
        """
        manifest = self._manifest
        special = (ids == SEP_ID) | (ids == CLS_ID)
        starts = self._segment_word_starts(ids, special, direction)
        keys = hashed_all(np.uint64(_PURPOSE), np.uint64(self._seed), epoch, stream, segment)

        is_target, order = [], []
        parts = zip(tf.split(starts, self._lengths, 1), tf.split(special, self._lengths, 1), self._goals)
        for number, (part_starts, part_special, goal) in enumerate(parts):
            part_keys = hashed_all(keys, number)
            is_target.append(self._targets(part_keys, part_starts, part_special, goal))
            if manifest.objective == "permutation":
                order.append(self._order(hashed_all(part_keys, number), part_starts.shape[1]))
        is_target = tf.concat(is_target, 1)
        positions = tf.reshape(tf.where(is_target)[:, 1], [ids.shape[0], manifest.num_predict])

        hidden = is_target | special if manifest.functional_tokens == "ordered" else is_target
        rank = tf.cast(hidden, tf.int32)
        if manifest.objective == "permutation":
            second = tf.repeat([0, self._lengths[0] + 1], self._lengths)
            rank = (tf.concat(order, 1) + 1) * rank + second
        return tf.cast(positions, tf.int16), tf.cast(rank, tf.int16)

    def _segment_word_starts(self, ids, special, direction):
        """Returns bool [B, T]: `Segments.word_start`, which records do not keep."""
        if self._manifest.mask["span_mode"] != "words":
            return tf.ones_like(special)
        begin = np.zeros(self._manifest.seq_len, bool)
        begin[[0, self._manifest.reuse_len]] = True
        in_text = tf.gather(self._word_starts, ids)
        # Read backward, a word begins after the token that begins the word before.
        starts = tf.where(direction[:, None] > 0, in_text, _shifted(in_text))
        return starts | special | _shifted(special) | begin

    def _targets(self, keys, starts, special, goal: int):
        """Chooses exactly `goal` targets in each row of a part, as `spans.sample_targets` does: bool [B, L].

        A token's key is that of its span or, after all spans, of its word; the smallest are the targets.
        """
        if not goal:
            return tf.zeros_like(special)
        length = starts.shape[1]
        max_words, context_per_word = self._manifest.mask["max_words"], self._words_per_span_word
        num_contexts = math.ceil(length / context_per_word) + max_words + 1
        counts = [length, num_contexts, num_contexts, num_contexts, 1]
        word_keys, span_keys, *draws = tf.split(random_bits(keys, sum(counts), _BITS), counts, 1)
        keys = word_keys | _NO_SPAN  # [B, L], by word
        if self._manifest.mask["span_mode"] != "single":
            span, in_span = _spans_of_words(*draws, length, max_words, context_per_word)
            keys = tf.where(in_span, _picked(span_keys, span), keys)
        if self._manifest.mask["span_mode"] == "words":
            word = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
            keys = _picked(keys, word)  # by token
        position_bits = (length - 1).bit_length()
        keys = keys & ~((1 << position_bits) - 1) | tf.range(length)
        keys = tf.where(special, tf.int32.max, keys)
        last = -tf.reduce_min(tf.math.top_k(-keys, goal, sorted=False).values, axis=1, keepdims=True)
        return keys <= last

    def _order(self, keys, length: int):
        """Draws each position's index in the order, int32 [B, length], as `ranks.sample_order` does."""
        perm_size = self._manifest.perm_size
        permutation = tf.math.top_k(random_bits(keys, perm_size, 31), perm_size).indices
        blocks = tf.range(0, length, perm_size)
        return tf.reshape(blocks[:, None] + permutation[:, None, :], [-1, length])


def _spans_of_words(
    length_draws, inset_draws, phase_draws, num_words: int, max_words: int, context_per_word: float
):
    """Lays contexts side by side over L words, each with one span in it.

    A context has context_per_word words for each word of its span, the span included. The draws are random
    bits, int32 [B, C] twice and [B, 1]. Returns the last span that begins at or before each word, int32 [B,
    L], 0 to C - 1, and whether the word is in it, bool [B, L].
    """
    weights = np.cumsum(1 / np.arange(1, max_words + 1))
    limits = (weights[:-1] / weights[-1] * (1 << _BITS)).astype(np.int32)  # P(n) ~ 1/n
    lengths = tf.ones_like(length_draws)
    for limit in limits:
        lengths += tf.cast(length_draws >= limit, tf.int32)
    words = tf.cast(lengths, tf.float32)
    contexts = tf.floor(tf.cumsum(words * context_per_word, axis=1, exclusive=True))
    # The first context begins somewhere before the row, so that no position of the row is special.
    phase = _scaled(phase_draws, min(math.ceil(max_words * context_per_word), _FAR))
    far = float(_FAR)  # beyond every row, and int32 holds the sum of two
    insets = _scaled(inset_draws, tf.minimum((context_per_word - 1) * words, far))
    begins = tf.cast(tf.minimum(contexts, far), tf.int32) - phase + insets

    # Spans that have begun and ended at each word, counted together: one in the high bits, one in the low.
    events = tf.maximum(tf.concat([begins, begins + lengths], 1), 0)
    amounts = tf.concat([tf.fill(tf.shape(begins), 1 << 16), tf.ones_like(begins)], 1)
    counts = tf.math.bincount(events, amounts, minlength=num_words, maxlength=num_words, axis=-1)
    counts = tf.cumsum(tf.ensure_shape(counts, [begins.shape[0], num_words]), axis=1)
    begun, ended = tf.bitwise.right_shift(counts, 16), counts & 0xFFFF
    return tf.maximum(begun - 1, 0), begun > ended


def _scaled(draws, limit):
    """Converts random bits to integers from 0 to below the limit (0 if the limit is 0)."""
    share = tf.cast(tf.bitwise.right_shift(draws, _BITS - 24), tf.float32) * 2.0**-24  # [0, 1), exact
    return tf.cast(tf.floor(share * limit), tf.int32)


def _picked(values, columns):
    """Returns values[b, columns[b, l]]: [B, L]; several times as fast as a gather by rows."""
    rows = tf.range(tf.shape(values)[0])[:, None] * values.shape[1]
    return tf.gather(tf.reshape(values, [-1]), rows + columns)


def _shifted(flags):
    """Shifts each row of bool [B, T] right by one position, starting with True."""
    return tf.concat([tf.ones_like(flags[:, :1]), flags[:, :-1]], 1)

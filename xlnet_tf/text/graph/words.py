"""The words of raw texts and their pieces, as xlnet_tf/text/word_finder.py finds them, in graph."""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xlnet_tf.text.graph.characters import substrings
from xlnet_tf.text.special_tokens import EOP_ID, SYMBOLS
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import UNDERLINE
from xlnet_tf.text.words import KINDS, LETTER, MARK, SPACE, UNSPACED, character_kind

_CODE_POINTS = 0x110000


class Words(NamedTuple):
    """The words of B texts, one after another, W in all."""

    pieces: tf.RaggedTensor  # int32 [W, (pieces)], their ids
    row: tf.Tensor  # int64 [W], the text of each
    # begins, ends: int64 [W], its first character in its text and the one after its last
    begins: tf.Tensor
    ends: tf.Tensor


class WordFinder(tf.Module):
    """Finds the words of texts, and the pieces of each; `texts` is the GraphTokenizer of the tokenizer."""

    def __init__(self, tokenizer: XLNetTokenizer, texts):
        super().__init__()
        self._texts = texts
        self._begins_with_space = np.array([piece.startswith(UNDERLINE) for piece in tokenizer.pieces])
        self._symbol_pieces = len(tokenizer.encode(SYMBOLS[EOP_ID]))

    def __call__(self, texts: tf.Tensor, codes: tf.RaggedTensor) -> Words:
        """Finds the words of texts [B].

        `codes` [B, (characters)] are their code points with a space after each text, for empty pieces.
        """
        encoded = self._texts.encode_with_offsets(texts)
        borders, unspaced = word_borders(codes)
        row = encoded.ids.value_rowids()
        first = tf.gather(codes.row_starts(), row)
        # From here on, offsets are counted in the characters of all texts.
        begins, ends = (first + tf.cast(o.flat_values, first.dtype) for o in (encoded.begins, encoded.ends))
        parts = _split(begins, ends, borders & unspaced)
        ids = self._ids(encoded.ids.flat_values, parts, codes.flat_values)

        row, first, begins = tf.gather(row, parts.piece), tf.gather(first, parts.piece), parts.begins
        # A piece of whitespace alone lies where the next one begins, which then continues its word.
        opens = (tf.gather(borders, begins) & (begins > _before(begins))) | (row != _before(row))
        word = tf.cumsum(tf.cast(opens, tf.int64)) - 1
        opening = tf.where(opens)[:, 0]
        count = tf.size(opening)
        lengths = tf.math.unsorted_segment_sum(ids.row_lengths(), word, count)
        return Words(
            tf.RaggedTensor.from_row_lengths(ids.flat_values, lengths, validate=False),
            tf.gather(row, opening),
            tf.gather(begins - first, opening),
            tf.math.unsorted_segment_max(parts.ends - first, word, count),
        )

    def _ids(self, ids: tf.Tensor, parts: "_Parts", codes: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of parts, [N, (ids)]; a whole piece keeps its own, others are encoded again."""
        ids = tf.gather(ids, parts.piece)
        anew = tf.where(parts.count > 1)[:, 0]
        after_space = tf.gather((parts.number == 0) & tf.gather(self._begins_with_space, ids), anew)
        texts = substrings(codes, tf.gather(parts.begins, anew), tf.gather(parts.ends, anew))
        with tf.device("/CPU:0"):
            # After a symbol that is always a piece of its own, text has no space before it.
            texts = tf.strings.join([tf.where(after_space, "", SYMBOLS[EOP_ID]), texts])
        encoded = self._texts.encode(texts)
        symbol = tf.cast(tf.where(after_space, 0, self._symbol_pieces), tf.int64)

        # The ids of a part are among those of whole pieces or, after these, those of new texts.
        size = tf.size(ids, tf.int64)
        whole, anew = tf.range(size), anew[:, None]
        begins = tf.tensor_scatter_nd_update(whole, anew, size + encoded.row_starts() + symbol)
        ends = tf.tensor_scatter_nd_update(whole + 1, anew, size + encoded.row_limits())
        return tf.gather(tf.concat([ids, encoded.flat_values], 0), tf.ragged.range(begins, ends))


class _Parts(NamedTuple):
    """Parts of pieces, int64 [N]: the piece, the number of the part, its parts, and the characters."""

    piece: tf.Tensor
    number: tf.Tensor
    count: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor


def _split(begins: tf.Tensor, ends: tf.Tensor, cuts: tf.Tensor) -> _Parts:
    """Splits pieces, from the characters `begins` to `ends`, at the cuts: at least one part of each."""
    cuts_before = tf.concat([[0], tf.cumsum(tf.cast(cuts, tf.int64))], 0)  # each character
    first = tf.gather(cuts_before, tf.minimum(begins + 1, ends))
    count = tf.gather(cuts_before, ends) - first + 1
    numbers = tf.ragged.range(count)
    piece, number = numbers.value_rowids(), numbers.flat_values
    first, count, begins, ends = (tf.gather(values, piece) for values in (first, count, begins, ends))
    offsets = tf.concat([[0], tf.where(cuts)[:, 0], [0]], 0)
    starts = tf.where(number == 0, begins, tf.gather(offsets, first + number))
    stops = tf.where(number == count - 1, ends, tf.gather(offsets, first + number + 1))
    return _Parts(piece, number, count, starts, stops)


def word_borders(codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where words may begin, as text.words.word_borders, for code points [B, (characters)].

    The result is (borders, unspaced), bool [characters of all texts]: whether a word may begin there, and
    whether that character or the one before it is of a script without spaces between words.
    """
    firsts, kinds = _kind_runs()
    kinds = tf.gather(kinds, tf.searchsorted(firsts, codes.flat_values, side="right") - 1)
    offsets = tf.where(kinds != KINDS.index(MARK))  # [N, 1]
    kind, row = tf.gather_nd(kinds, offsets), tf.gather_nd(codes.value_rowids(), offsets)
    before = tf.where(row == _before(row), _before(kind), KINDS.index(SPACE))
    borders = (kind != KINDS.index(SPACE)) & ((kind != before) | (kind != KINDS.index(LETTER)))
    unspaced = (kind == KINDS.index(UNSPACED)) | (before == KINDS.index(UNSPACED))
    shape = tf.shape(kinds, tf.int64)
    return tf.scatter_nd(offsets, borders, shape), tf.scatter_nd(offsets, unspaced, shape)


def _before(values: tf.Tensor) -> tf.Tensor:
    """Returns for each of [N] integers the one before it, -1 for the first."""
    return tf.concat([tf.constant([-1], values.dtype), values[:-1]], 0)


@functools.cache
def _kind_runs() -> tuple[np.ndarray, np.ndarray]:
    """Returns the runs of code points of one kind: int32 [R] first ones, and numbers in KINDS."""
    kinds = np.array([KINDS.index(character_kind(chr(code))) for code in range(_CODE_POINTS)], np.int32)
    firsts = np.flatnonzero(np.diff(kinds, prepend=-1)).astype(np.int32)
    return firsts, kinds[firsts]

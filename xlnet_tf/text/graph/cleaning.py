"""The cleaning of text as TensorFlow operations on code points: what `cleaning.clean_text` does, for a batch.

The tables are generated from Python's results for single characters. That suffices, since neighbours matter
in two cases only: the order of combining marks, which are dropped, and the Greek sigma that ends a word.
"""

import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xlnet_tf.text.cleaning import CleaningConfig, clean_text
from xlnet_tf.text.graph.tables import PageTable, Replacements

_CODE_POINTS = sys.maxunicode + 1
_BLOCK = 256
_APART = "\ue000"  # of private use: no rule changes it, or what is next to it
_SPACE, _APOSTROPHE, _BACKTICK, _QUOTE = map(ord, " '`\"")
_CAPITAL_SIGMA, _SIGMA, _FINAL_SIGMA = map(ord, "\u03a3\u03c3\u03c2")
# How a character counts when a sigma looks for the letters next to it; one that is ignored is skipped.
_CASED, _IGNORED = 1, 2


class Cleaned(NamedTuple):
    """The characters of N cleaned texts and their origin."""

    codes: tf.RaggedTensor  # ragged int32 [N, (characters)], code points
    # ragged int32 [N, (characters)], offset of each character's origin in the raw text
    offsets: tf.RaggedTensor
    ends: tf.Tensor  # int32 [N], the offset in the raw text of what follows the last character


class GraphCleaner:
    """`clean_text` for code points."""

    def __init__(self, config: CleaningConfig):
        self._config = config
        self._spaces = _spaces() if config.collapse_whitespace else None
        changes_characters = config.lower or not config.keep_accents
        self._characters = _character_table(config.lower, config.keep_accents) if changes_characters else None
        self._letters = _letter_table() if config.lower else None

    def clean(self, raw: tf.RaggedTensor) -> Cleaned:
        """Does what `offsets.clean_with_offsets` does, for the code points [N, (characters)] of N texts."""
        codes = raw.flat_values
        rows = tf.cast(raw.value_rowids(), tf.int32)
        lengths = tf.cast(raw.row_lengths(), tf.int32)
        offsets = tf.range(tf.size(codes)) - tf.gather(tf.cumsum(lengths, exclusive=True), rows)
        keep, ends = tf.ones_like(codes, tf.bool), lengths
        if self._config.collapse_whitespace:
            codes, keep, ends = self._collapse_whitespace(codes, rows, offsets, raw.nrows())
        if self._config.normalize_quotes:
            codes, second = _join_quotes(codes, offsets)
            keep &= ~second
        if self._characters is None:
            sources = tf.cast(tf.where(keep)[:, 0], tf.int32)
            codes = tf.gather(codes, sources)
        else:
            codes, sources, _ = self._characters.apply(codes, keep)
        rows, offsets = tf.gather(rows, sources), tf.gather(offsets, sources)
        if self._config.lower:
            codes = self._lower_sigmas(codes, rows)
        codes = tf.RaggedTensor.from_value_rowids(codes, tf.cast(rows, tf.int64), raw.nrows(), validate=False)
        return Cleaned(codes, codes.with_values(offsets), ends)

    def _collapse_whitespace(self, codes, rows, offsets, count):
        """Returns code points, which of them stay (the first of each run), and where each text ends."""
        space = tf.gather(self._spaces, tf.minimum(codes, len(self._spaces) - 1))
        leading = (offsets == 0) | tf.roll(space, 1, axis=0)
        ends = tf.math.unsorted_segment_max(tf.where(space, 0, offsets + 1), rows, count)
        ends = tf.maximum(ends, 0)  # of a text without characters
        keep = ~space | (~leading & (offsets < tf.gather(ends, rows)))
        return tf.where(space, _SPACE, codes), keep, ends

    def _lower_sigmas(self, codes, rows):
        """Lower-cases the capital sigmas, the last capitals left: one at a word's end has its own form."""
        letters = self._letters.lookup(codes)
        counted = tf.where(letters != _IGNORED)
        near, near_rows = (tf.gather(values, counted[:, 0]) for values in (codes, rows))
        cased = tf.gather(letters, counted[:, 0]) == _CASED
        # The row before the first and after the last is none.
        bounds = tf.pad(near_rows, [[1, 1]], constant_values=-1)
        before = tf.roll(cased, 1, axis=0) & (bounds[:-2] == near_rows)
        after = tf.roll(cased, -1, axis=0) & (bounds[2:] == near_rows)
        sigma = tf.where(before & ~after, _FINAL_SIGMA, _SIGMA)
        near = tf.where(near == _CAPITAL_SIGMA, sigma, near)
        return tf.tensor_scatter_nd_update(codes, counted, near)


def _join_quotes(codes, offsets):
    """Makes one double quote of two backticks or apostrophes; returns codes and which are the second."""
    quote = (codes == _BACKTICK) | (codes == _APOSTROPHE)
    same = quote & (codes == tf.roll(codes, 1, axis=0)) & (offsets > 0)
    # In a run of equal quotes, every other one is the second of a pair.
    starts = tf.where(~same)[:, 0]
    start = tf.gather(starts, tf.cumsum(tf.cast(~same, tf.int32)) - 1)
    second = (tf.range(tf.size(codes), dtype=tf.int64) - start) % 2 == 1
    return tf.where(tf.roll(second, -1, axis=0), _QUOTE, codes), second


@functools.cache
def _spaces() -> np.ndarray:
    """Returns which code points `str.split` splits at, up to the last one: bool."""
    spaces = [space.start() for space in re.finditer(r"\s", _all_characters())]
    return np.isin(np.arange(spaces[-1] + 2), spaces)


@functools.cache
def _character_table(lower: bool, keep_accents: bool) -> Replacements:
    """Returns the result of the single-character rules for each character; a capital sigma stays one."""
    rules = CleaningConfig(keep_accents=keep_accents, normalize_quotes=False, collapse_whitespace=False)

    def change(text: str) -> str:
        text = clean_text(text, rules)
        if lower and text != text.lower():
            text = "".join(each if ord(each) == _CAPITAL_SIGMA else each.lower() for each in text)
        return text

    lists = {}
    for block in _blocks(lambda block: change(block) != block):
        for character, changed in zip(block, change(_APART.join(block)).split(_APART), strict=True):
            if changed != character:
                lists[ord(character)] = [*map(ord, changed)]
    return Replacements(lists, _CODE_POINTS)


@functools.cache
def _letter_table() -> PageTable:
    """Returns which characters have case and which are ignored, derived from Python's handling of a sigma."""
    sigma = chr(_CAPITAL_SIGMA)

    def ends_word(before: str) -> bool:
        return (before + sigma).lower()[-1] == chr(_FINAL_SIGMA)

    def has_letters(block: str) -> bool:
        return chr(_FINAL_SIGMA) in f"a{f'{sigma} a'.join(block)}{sigma}".lower()

    letters = np.zeros(_CODE_POINTS, np.uint16)
    for character in itertools.chain.from_iterable(_blocks(has_letters)):
        if ends_word("a" + character):
            letters[ord(character)] = _CASED if ends_word(character) else _IGNORED
    return PageTable(letters)


def _all_characters() -> str:
    """Returns all code points in their order."""
    return np.arange(_CODE_POINTS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _blocks(is_special: Callable[[str], bool]) -> Iterator[str]:
    """Yields the blocks of characters, by code points, that are special; checking all 1.1 million is slow."""
    characters = _all_characters()
    for first in range(0, _CODE_POINTS, _BLOCK):
        block = characters[first : first + _BLOCK]
        if is_special(block):
            yield block

"""The words of a raw text of any language, and the pieces of each."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

from xlnet_tf.text.offsets import encode_with_offsets
from xlnet_tf.text.special_tokens import EOP_ID, SYMBOLS
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import UNDERLINE
from xlnet_tf.text.words import word_borders

_CACHED_WORDS = 1 << 17


class Words(NamedTuple):
    """The words of a text."""

    offsets: list[tuple[int, int]]  # of each word: its first character, and the one after its last
    pieces: list[list[int]]  # ids of each word, one at least


class WordFinder:
    """Finds words: one begins where both the text and a piece begin one.

    In the text that is at letters after spaces or punctuation, at every punctuation mark, and at every
    character of scripts without spaces between words; pieces of several such characters are split.
    """

    def __init__(self, tokenizer: XLNetTokenizer):
        self._tokenizer = tokenizer
        self.encode = functools.lru_cache(_CACHED_WORDS)(tokenizer.encode)

    def find(self, text: str) -> Words:
        """Returns the words of a text; there may be none."""
        borders = word_borders(text)
        words = Words([], [])
        before = -1
        for ids, begin, end in self._pieces(text, borders):
            # A piece of whitespace alone lies where the next one begins, which then continues its word.
            if not words.pieces or (begin in borders and begin > before):
                words.offsets.append((begin, end))
                words.pieces.append([])
            words.offsets[-1] = (words.offsets[-1][0], max(end, words.offsets[-1][1]))
            words.pieces[-1].extend(ids)
            before = begin
        return words

    def _pieces(self, text: str, borders: dict[int, bool]) -> Iterator[tuple[list[int], int, int]]:
        """Yields (ids, begin, end) of the text's pieces; those of several unspaced words are split."""
        encoded = encode_with_offsets(self._tokenizer, text)
        for piece_id, begin, end in zip(encoded.ids, encoded.begins.tolist(), encoded.ends.tolist()):
            cuts = [index for index in range(begin + 1, end) if borders.get(index)]
            for start, stop in zip([begin, *cuts], [*cuts, end]):
                if not cuts:
                    yield [piece_id], begin, end
                elif start == begin and self._tokenizer.id_to_piece(piece_id)[0] == UNDERLINE:
                    yield self.encode(text[start:stop]), start, stop
                else:
                    yield self.unspaced(text[start:stop]), start, stop

    def unspaced(self, word: str) -> list[int]:
        """Encodes a word without a space before it: after a symbol that is always a piece of its own."""
        ids = self.encode(SYMBOLS[EOP_ID] + word)
        return ids[ids.index(EOP_ID) + 1 :]

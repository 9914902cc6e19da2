"""The original's rule for commas after digits: "5," is a number and a comma, whatever SentencePiece says.

Shapes: V pieces of the vocabulary, N pieces of all texts.
"""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import sentencepiece

from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.vocabulary import UNDERLINE


class CommaRule:
    """Splits the pieces that end in a digit and a comma."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str]):
        self._processor, self._pieces = processor, pieces

    def encode(self, text: str) -> list[tuple[str, int]]:
        """Splits a cleaned text into (piece, id), commas after digits on their own."""
        parts = (
            self._parts(piece) if _ends_in_digit_comma(piece) else [(piece, piece_id)]
            for piece, piece_id in self._encode_raw(text)
        )
        return list(itertools.chain.from_iterable(parts))

    def split(self, ids: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Applies the rule to many texts at once; takes and returns (ids [N], lengths [texts])."""
        counts, parts = self._table
        token_counts = counts[ids]
        changed = np.flatnonzero(token_counts != 1)
        if not len(changed):
            return ids, lengths
        text = np.searchsorted(np.cumsum(lengths), changed, side="right")
        np.add.at(lengths, text, token_counts[changed] - 1)
        begins = np.cumsum(token_counts) - token_counts
        split_ids = np.repeat(ids, token_counts)
        for offset in range(parts.shape[1]):
            longer = changed[token_counts[changed] > offset]
            split_ids[begins[longer] + offset] = parts[ids[longer], offset]
        return split_ids, lengths

    @functools.cached_property
    def parts(self) -> dict[int, list[tuple[str, int]]]:
        """The parts of the pieces that the rule splits: id -> (piece, id) of each part."""
        return {
            piece_id: self._parts(piece)
            for piece_id, piece in enumerate(self._pieces)
            if _ends_in_digit_comma(piece)
        }

    @functools.cached_property
    def unknown_may_end_in_comma(self) -> bool:
        """Whether the vocabulary has no comma: then unknown characters can hold one after a digit."""
        return self._processor.piece_to_id(",") == UNK_ID

    @functools.cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of parts of each piece, int32 [V], and their ids, int32 [V, most]."""
        most = max(map(len, self.parts.values()), default=1)
        counts = np.ones(len(self._pieces), np.int32)
        ids = np.zeros((len(counts), most), np.int32)
        ids[:, 0] = np.arange(len(counts))
        for piece_id, parts in self.parts.items():
            counts[piece_id] = len(parts)
            ids[piece_id, : len(parts)] = [part_id for _, part_id in parts]
        return counts, ids

    def _parts(self, piece: str) -> list[tuple[str, int]]:
        """Splits a piece such as '5,' into the number, encoded anew, and the comma, as the original does.

        A number that needs no space before it loses the underline of its first piece, even if what is left is
        not a piece of the vocabulary.
        """
        number = self._encode_raw(piece[:-1].replace(UNDERLINE, ""))
        first = number[0][0]
        if piece[0] != UNDERLINE and first[0] == UNDERLINE:
            rest = first[1:]
            number[:1] = [(rest, self._piece_id(rest))] if rest else []
        return [*number, (",", self._piece_id(","))]

    def _encode_raw(self, text: str) -> list[tuple[str, int]]:
        """SentencePiece's own (piece, id) pairs."""
        encode = self._processor.encode
        return list(zip(encode(text, out_type=str), encode(text, out_type=int), strict=True))

    def _piece_id(self, piece: str) -> int:
        """Returns a piece's id; text that looks like a control symbol is unknown text."""
        piece_id = self._processor.piece_to_id(piece)
        return UNK_ID if self._processor.is_control(piece_id) else piece_id


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()

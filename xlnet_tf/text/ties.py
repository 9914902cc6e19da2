"""One rule for ties between ways to split a text, whichever SentencePiece is installed.

Two ways to split a text often have equal scores: if "b" and "bb" are pieces, "bbb" is "b bb" and "bb b".
SentencePiece 0.2.1, and the one in TensorFlow Text 2.20, add a piece's score in float64 to the sum before it,
which is kept in float32. Of two ways to the same place, the one found later wins if its sum, not yet rounded,
is larger than the earlier one's, rounded: so rounding decides. Releases from 0.2.2 on round before they
compare, and split some texts differently. Records, checkpoints and served graphs must agree. So the rule of
0.2.1 holds for all of them, manifests and model cards record it, and where the installed release has another
one, texts are split here.

Source: `EncodeOptimized` in src/unigram_model.cc of SentencePiece.
"""

import array
import math
from typing import Any

import numpy as np
import sentencepiece
from absl import logging

from xlnet_tf.text.model_proto import ModelProto
from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.vocabulary import PieceTable

RULE = "sentencepiece-0.2.1"  # in manifests and model cards

_Piece = ModelProto.SentencePiece
_REPEATS = (3, 4, 5, 7, 11)  # of a piece of which a multiple is a piece, too
_MOST_REPEATED = 64


def probes(table: PieceTable) -> list[str]:
    """Returns short texts with ways of equal scores: repeats of a piece x where xx or xxx is one, too."""
    if table.trainer.model_type != table.trainer.UNIGRAM:
        return []
    normal = [table.pieces[number] for number in np.flatnonzero(table.types == _Piece.NORMAL).tolist()]
    known = set(normal)
    repeated = [piece for piece in normal if piece * 2 in known or piece * 3 in known][:_MOST_REPEATED]
    return [f"{before}{piece * count}" for piece in repeated for count in _REPEATS for before in ("", "a ")]


def load_processor(model_proto: bytes) -> sentencepiece.SentencePieceProcessor:
    """Loads a SentencePiece model, which breaks ties by RULE; RuntimeError if it is not one."""
    processor = sentencepiece.SentencePieceProcessor()
    if not (model_proto and processor.LoadFromSerializedProto(model_proto)):
        raise RuntimeError("not a SentencePiece model")
    table = PieceTable.parse(model_proto)
    if not (texts := probes(table)):
        return processor
    search = TieSearch(table)
    if all(processor.encode(text) == search.ids(processor.normalize(text)) for text in texts):
        return processor
    logging.log_first_n(
        logging.WARNING,
        "sentencepiece %s breaks ties between pieces differently from %s, the rule of records and models: "
        "texts are split by that rule, which is slower than with sentencepiece==0.2.1",
        1,
        sentencepiece.__version__,
        RULE,
    )
    ruled = _RuledProcessor()
    ruled.LoadFromSerializedProto(model_proto)
    ruled.search = search
    return ruled


class TieSearch:
    """Finds the best way to split a normalized text, as a unigram model does that breaks ties by RULE."""

    def __init__(self, table: PieceTable):
        scores = table.text_scores
        self._entries = {
            table.pieces[piece_id]: (float(scores[piece_id]), int(piece_id))
            for piece_id in np.flatnonzero(~np.isnan(scores))
        }
        self._longest: dict[str, int] = {}  # piece that begins with two characters
        for piece in self._entries:
            start = piece[:2]
            self._longest[start] = max(len(piece), self._longest.get(start, 1))
        self._unknown = table.unknown_score
        self._bytes = {
            int(piece[1:-1], 16): (piece, piece_id)
            for piece_id, piece in enumerate(table.pieces)
            if table.types[piece_id] == _Piece.BYTE
        }

    def ids(self, text: str) -> list[int]:
        """Returns the ids of a normalized text's pieces."""
        return [piece_id for _, piece_id in self.split(text)]

    def split(self, text: str) -> list[tuple[str, int]]:
        """Splits a normalized text into (piece, id)."""
        size = len(text)
        best = array.array("f", [0, *[-math.inf] * size])  # of the ways to each character; it rounds
        last = [(0, UNK_ID)] * (size + 1)  # the begin and the id of each best way's last piece
        entries, longest_of = self._entries, self._longest.get
        for begin in range(size):
            before = best[begin]
            longest = longest_of(text[begin : begin + 2], 1)
            for end in range(begin + 1, min(begin + longest, size) + 1):
                if entry := entries.get(text[begin:end]):
                    if (score := entry[0] + before) > best[end]:
                        best[end], last[end] = score, (begin, entry[1])
                elif end == begin + 1 and (score := float(np.float32(self._unknown + before))) > best[end]:
                    best[end], last[end] = score, (begin, UNK_ID)
        pieces: list[tuple[str, int]] = []
        end = size
        while end:
            begin, piece_id = last[end]
            pieces.append((text[begin:end], piece_id))
            end = begin
        return self._with_unknown(pieces[::-1])

    def _with_unknown(self, pieces: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Joins adjacent unknown characters, or spells them in bytes, as the vocabulary has it."""
        joined: list[tuple[str, int]] = []
        for piece, piece_id in pieces:
            if piece_id != UNK_ID:
                joined.append((piece, piece_id))
            elif self._bytes:
                joined += [self._bytes[byte] for byte in piece.encode()]
            elif joined and joined[-1][1] == UNK_ID:
                joined[-1] = (joined[-1][0] + piece, UNK_ID)
            else:
                joined.append((piece, UNK_ID))
        return joined


class _RuledProcessor(sentencepiece.SentencePieceProcessor):
    """A processor whose `encode` splits texts by a TieSearch."""

    search: TieSearch

    def encode(self, texts: str | list[str], out_type: type = int, **_: Any) -> Any:
        if isinstance(texts, str):
            return [piece[out_type is int] for piece in self.search.split(self.normalize(texts))]
        return [self.encode(text, out_type) for text in texts]

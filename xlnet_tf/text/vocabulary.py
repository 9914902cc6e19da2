"""The pieces of a tokenizer by the names that Hugging Face's users know: tokens, ids, special tokens."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import sentencepiece
from typing_extensions import Self

from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.text import special_tokens
from xlnet_tf.text.model_proto import ModelProto, NormalizerSpec, TrainerSpec

UNDERLINE = "\u2581"  # SentencePiece's mark for a space

_SPECIAL = {
    f"{name}_token": special_tokens.SYMBOLS[getattr(special_tokens, f"{name.upper()}_ID")]
    for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
}


TOKENIZER_FILE = "spiece.model"
_Piece = ModelProto.SentencePiece
# How SentencePiece scores an unknown character: this much below the least score of a piece; and a symbol that
# users defined: its bytes times the largest of a piece (or the smallest positive number), less the penalty.
_UNKNOWN_PENALTY, _SYMBOL_PENALTY = 10, 0.1


@dataclasses.dataclass(frozen=True)
class PieceTable:
    """The content of a SentencePiece model's file, its pieces as columns."""

    pieces: list[str]  # [V], as they are spelled
    scores: np.ndarray  # float64 [V]
    types: np.ndarray  # int [V], NORMAL and the others of `ModelProto.SentencePiece`
    # trainer, normalizer: how the model was trained, and how it normalizes a text
    trainer: TrainerSpec
    normalizer: NormalizerSpec

    @classmethod
    def parse(cls, model_proto: bytes) -> Self:
        """Reads a serialized SentencePiece model."""
        model = ModelProto.FromString(model_proto)
        pieces, scores, types = zip(*[(piece.piece, piece.score, piece.type) for piece in model.pieces])
        return cls(list(pieces), np.array(scores), np.array(types), model.trainer_spec, model.normalizer_spec)

    @functools.cached_property
    def text_scores(self) -> np.ndarray:
        """Float64 [V], the scores that SentencePiece adds up; NaN for pieces that no text spells."""
        is_normal, is_symbol = (self.types == kind for kind in (_Piece.NORMAL, _Piece.USER_DEFINED))
        scores = np.where(is_normal, self.scores, np.nan)
        largest = np.float32(max(self.scores[is_normal].max(), np.finfo(np.float32).tiny))
        for piece_id in np.flatnonzero(is_symbol):
            size = np.float32(len(self.pieces[piece_id].encode()))
            scores[piece_id] = float(size * largest) - _SYMBOL_PENALTY
        return scores

    @property
    def unknown_score(self) -> float:
        least = self.scores[self.types == _Piece.NORMAL].min()
        return float(np.float32(least) - np.float32(_UNKNOWN_PENALTY))

    def splits_like(self, other: "PieceTable") -> bool:
        """Returns whether both split all texts alike, however they were trained."""
        columns = ("pieces", "scores", "types")
        return self.normalizer.precompiled_charsmap == other.normalizer.precompiled_charsmap and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in columns
        )


def check_word_marks(model_proto: bytes, source: str) -> None:
    """Checks that the pieces of a SentencePiece model show where words begin, which spans of words need."""
    model = ModelProto.FromString(model_proto)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    settings = {
        "treat_whitespace_as_suffix=true": trainer.treat_whitespace_as_suffix,
        "split_by_whitespace=false": not trainer.split_by_whitespace,
        "add_dummy_prefix=false": not normalizer.add_dummy_prefix,
        "escape_whitespaces=false": not normalizer.escape_whitespaces,
    }
    if wrong := [name for name, is_set in settings.items() if is_set]:
        raise UserError(
            f"{source} was trained with {', '.join(wrong)}, so its pieces do not show where each word "
            f"begins; expected {UNDERLINE!r} at the begin of each word, as in XLNet's pieces. Train a "
            "tokenizer with `xlnet-tf train-tokenizer`."
        )


class Vocabulary:
    """The pieces of a SentencePiece model."""

    bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token = _SPECIAL.values()
    bos_token_id, eos_token_id = special_tokens.BOS_ID, special_tokens.EOS_ID
    unk_token_id, sep_token_id = special_tokens.UNK_ID, special_tokens.SEP_ID
    pad_token_id, cls_token_id = special_tokens.PAD_ID, special_tokens.CLS_ID
    mask_token_id = special_tokens.MASK_ID
    all_special_tokens, all_special_ids = list(special_tokens.SYMBOLS), list(special_tokens.IDS.values())
    special_tokens_map: Mapping[str, Any] = {**_SPECIAL, "additional_special_tokens": ["<eop>", "<eod>"]}
    padding_side = "left"

    model_proto: bytes
    _processor: sentencepiece.SentencePieceProcessor

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def vocab_size(self) -> int:
        """Number of pieces V, special symbols included."""
        return self._processor.vocab_size()

    @functools.cached_property
    def piece_table(self) -> PieceTable:
        return PieceTable.parse(self.model_proto)

    @property
    def pieces(self) -> list[str]:
        """All pieces, by id."""
        return self.piece_table.pieces

    def get_vocab(self) -> dict[str, int]:
        """Returns the id of each piece."""
        return {piece: piece_id for piece_id, piece in enumerate(self.pieces)}

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> int | list[int]:
        """Returns the id of a piece, or those of several; unknown pieces give `<unk>`, 0."""
        if isinstance(tokens, str):
            return self._processor.piece_to_id(tokens)
        return [self._processor.piece_to_id(token) for token in tokens]

    def convert_ids_to_tokens(
        self, ids: int | Iterable[int] | np.ndarray, skip_special_tokens: bool = False
    ) -> str | list[str]:
        """Returns the piece of an id, or those of several."""
        ids = ids.numpy() if hasattr(ids, "numpy") else ids  # of tensors
        if np.ndim(ids) == 0:
            return self.pieces[self._checked(ids)]
        first = len(special_tokens.SYMBOLS) if skip_special_tokens else 0
        return [self.pieces[i] for i in map(self._checked, ids) if i >= first]

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        """Returns the text of pieces."""
        return "".join(tokens).replace(UNDERLINE, " ").strip()

    def _checked(self, piece_id: Any) -> int:
        if not isinstance(piece_id, int | np.integer) or not 0 <= piece_id < self.vocab_size:
            raise UserError(
                f"{short_repr(piece_id)} is not the id of a piece; expected integers from 0 to "
                f"{self.vocab_size - 1}."
            )
        return int(piece_id)

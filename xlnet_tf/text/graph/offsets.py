"""Which characters of raw texts pieces stand for, as TensorFlow operations: `offsets.encode_with_offsets`.

SentencePiece says which bytes a piece was made of, which is not enough where its normalisation makes several
characters of one, and a piece ends between them. A second model says it for each character: it normalizes as
the first does, and its pieces are single bytes.
"""

import numpy as np
import tensorflow as tf

from xlnet_tf.text.graph.cleaning import Cleaned
from xlnet_tf.text.graph.sentencepiece import SentencePieceModel
from xlnet_tf.text.model_proto import ModelProto, TrainerSpec
from xlnet_tf.text.vocabulary import UNDERLINE

_Piece = ModelProto.SentencePiece


def visible_length(piece: str) -> int:
    """Returns how many characters of a text a piece stands for; underlines stand for none."""
    return len(piece) - piece.count(UNDERLINE)


def visible_lengths(pieces: tf.Tensor) -> tf.Tensor:
    """Returns int32 [K], the `visible_length` of string [K] pieces."""
    return tf.strings.length(tf.strings.regex_replace(pieces, UNDERLINE, ""), unit="UTF8_CHAR")


class Aligner(tf.Module):
    """Finds pieces in raw texts."""

    def __init__(self, proto: bytes):
        super().__init__()
        model = _byte_model(proto)
        self._model = SentencePieceModel(model.SerializeToString())
        self._visible = np.array([_begun_characters(piece) for piece in model.pieces], np.int32)

    def align(
        self, raw: tf.RaggedTensor, cleaned: Cleaned, texts: tf.Tensor, lengths: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Finds pieces with these `visible_length`s [N, (pieces)] in raw texts [N, (characters)].

        Returns their begins and ends, each ragged int32 [N, (pieces)], as in `offsets.Encoded`.
        """
        # All texts are concatenated: each has a position for every character and one for its end.
        origins = tf.cumsum(tf.cast(raw.row_lengths(), tf.int32) + 1, exclusive=True)
        begins, ends = self._visible_characters(texts, *_byte_places(cleaned, origins))

        rows = tf.cast(lengths.value_rowids(), tf.int32)
        counts = lengths.values
        first = tf.cumsum(counts, exclusive=True) + rows  # each earlier text has an end
        piece_begins = tf.gather(begins, first)
        piece_ends = tf.gather(ends, tf.maximum(first + counts - 1, 0))
        piece_ends = tf.where(counts > 0, piece_ends, piece_begins)
        origins = tf.gather(origins, rows)
        return lengths.with_values(piece_begins - origins), lengths.with_values(piece_ends - origins)

    def _visible_characters(
        self, texts: tf.Tensor, byte_places: tf.Tensor, first_bytes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds begins and ends [K] of the visible characters; one after each text's last is its end."""
        ids, begun, done = self._model.ids_with_bytes(texts)
        done = tf.math.unsorted_segment_max(done.values, done.value_rowids(), done.nrows())
        done = tf.maximum(done, 0)  # of a text without characters
        offsets = _append(begun, done)
        counts = _append(
            ids.with_values(tf.gather(self._visible, ids.values)), tf.ones_like(done, tf.int32)
        ).values
        rows = offsets.value_rowids()
        begins = tf.gather(byte_places, tf.cast(offsets.values, tf.int32) + tf.gather(first_bytes, rows))
        # A character ends where the next one that begins elsewhere does.
        distinct, which = tf.unique(begins)
        ends = tf.gather(distinct, tf.minimum(which + 1, tf.size(distinct) - 1))
        ends = tf.minimum(ends, tf.gather(begins, tf.gather(offsets.row_limits(), rows) - 1))
        return tf.repeat(begins, counts), tf.repeat(ends, counts)


def _byte_places(cleaned: Cleaned, origins: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the origin of each byte of cleaned texts and of their ends, int32 [K], and each text's first."""
    codes = cleaned.codes.values
    sizes = 1 + sum(tf.cast(codes >= first, tf.int32) for first in (0x80, 0x800, 0x10000))
    sizes = _append(cleaned.codes.with_values(sizes), tf.ones_like(origins))
    offsets = _append(cleaned.offsets, cleaned.ends).values + tf.gather(origins, sizes.value_rowids())
    first = tf.gather(tf.cumsum(sizes.values, exclusive=True), sizes.row_starts())
    return tf.repeat(offsets, sizes.values), first


def _append(rows: tf.RaggedTensor, last: tf.Tensor) -> tf.RaggedTensor:
    """Appends one value to each row; `tf.concat` takes ten times as many operations."""
    old = tf.range(tf.size(rows.values)) + tf.cast(rows.value_rowids(), tf.int32)
    count = tf.size(last)
    new = tf.cast(rows.row_limits(), tf.int32) + tf.range(count)
    values = tf.dynamic_stitch([old, new], [rows.values, last])
    splits = rows.row_splits + tf.range(tf.cast(count, tf.int64) + 1)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def _byte_model(proto: bytes) -> ModelProto:
    """A SentencePiece model that normalizes as another does and splits into bytes."""
    source = ModelProto.FromString(proto)
    model = ModelProto(normalizer_spec=source.normalizer_spec, trainer_spec=source.trainer_spec)
    model.trainer_spec.model_type = TrainerSpec.CHAR
    model.trainer_spec.byte_fallback = True
    # Pieces that users may write are not normalized.
    kinds = (_Piece.UNKNOWN, _Piece.CONTROL, _Piece.USER_DEFINED)
    model.pieces.extend(piece for piece in source.pieces if piece.type in kinds)
    if UNDERLINE not in {piece.piece for piece in model.pieces}:
        model.pieces.add(piece=UNDERLINE, type=_Piece.NORMAL)
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=_Piece.BYTE)
    model.trainer_spec.vocab_size = len(model.pieces)
    return model


def _begun_characters(piece: _Piece) -> int:
    """How many visible characters begin in a piece of a byte model."""
    if piece.type != _Piece.BYTE:
        return visible_length(piece.piece)
    return int(int(piece.piece[3:5], 16) & 0xC0 != 0x80)  # the others continue a character

"""XLNet's tokenizer as TensorFlow operations, for SavedModels that read raw text."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.text.graph.characters import CPU, characters
from xlnet_tf.text.graph.cleaning import GraphCleaner
from xlnet_tf.text.graph.offsets import Aligner, visible_length, visible_lengths
from xlnet_tf.text.graph.sentencepiece import SentencePieceModel
from xlnet_tf.text.graph.tables import Replacements
from xlnet_tf.text.tokenizer import XLNetTokenizer

_TEXTS = (tf.TensorSpec([None], tf.string),)


class GraphEncoded(NamedTuple):
    """Pieces of N texts and their offsets, ragged int32, which count the characters of `valid` texts."""

    ids: tf.RaggedTensor
    begins: tf.RaggedTensor
    ends: tf.RaggedTensor


class GraphTokenizer(tf.Module):
    """`XLNetTokenizer` as TensorFlow operations on the CPU: the same ids, whatever the bytes.

    Bytes that are not UTF-8 become U+FFFD, as `bytes.decode(errors="replace")` has it.
    """

    def __init__(self, tokenizer: XLNetTokenizer):
        super().__init__()
        if tokenizer.commas.unknown_may_end_in_comma:
            raise UserError(
                "the tokenizer's vocabulary has no piece ',', without which the rule for commas after digits "
                "cannot run in a SavedModel: train one on text with commas (xlnet-tf train-tokenizer)."
            )
        self.vocab_size = tokenizer.vocab_size
        self._cleaner = GraphCleaner(tokenizer.cleaning)
        self._model = SentencePieceModel(tokenizer.model_proto, tokenizer.ties)
        splits = tokenizer.commas.parts
        self._commas = Replacements(
            {piece_id: [part_id for _, part_id in parts] for piece_id, parts in splits.items()},
            self.vocab_size,
        )
        self._comma_lengths = np.array(
            [visible_length(part) for parts in splits.values() for part, _ in parts] + [0], np.int32
        )
        byte_fallback = tokenizer.piece_table.trainer.byte_fallback
        self._aligner = None if byte_fallback else Aligner(tokenizer.model_proto)

    def encode(self, texts) -> tf.RaggedTensor:
        """Cleans and encodes texts as `XLNetTokenizer.encode` does: ragged int32 [N, (pieces)]."""
        return self._encode(tf.convert_to_tensor(texts, tf.string))

    def encode_with_offsets(self, texts) -> GraphEncoded:
        """Does what `offsets.encode_with_offsets` does; offsets count the characters of `valid`."""
        if self._aligner is None:
            raise UserError("the tokenizer has byte fallback: offsets need a SentencePiece model without it")
        return self._encode_with_offsets(tf.convert_to_tensor(texts, tf.string))

    def valid(self, texts) -> tf.Tensor:
        """Returns string [N]: string [N] texts, with U+FFFD for what is not UTF-8."""
        with tf.device(CPU):
            return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def decode(self, ids) -> tf.Tensor:
        """Returns string [N], the texts of int32 [N, (pieces)] ids, as `XLNetTokenizer.decode` does."""
        with tf.device(CPU):
            if not isinstance(ids, tf.RaggedTensor):
                ids = tf.RaggedTensor.from_tensor(ids)
            return self._model.decode(ids.with_row_splits_dtype(tf.int64))

    def pieces(self, ids) -> tf.Tensor:
        """Returns the pieces of int32 ids of any shape, as strings of the same shape."""
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.pieces(ids.flat_values))
        with tf.device(CPU):
            return tf.reshape(self._model.spell(tf.reshape(ids, [-1])), tf.shape(ids))

    # One function, so that a SavedModel holds the tables once, however many signatures use them.
    @tf.function(input_signature=_TEXTS, autograph=False)
    def _encode(self, texts):
        with tf.device(CPU):
            cleaned = self._cleaner.clean(characters(texts))
            ids = self._model.ids(_encode(cleaned.codes))
            split = self._commas.apply(ids.values)
            return _regroup(ids, split.values, split.sources)

    @tf.function(input_signature=_TEXTS, autograph=False)
    def _encode_with_offsets(self, texts):
        with tf.device(CPU):
            raw = characters(texts)
            cleaned = self._cleaner.clean(raw)
            cleaned_texts = _encode(cleaned.codes)
            ids = self._model.ids(cleaned_texts)
            split = self._commas.apply(ids.values)
            lengths = tf.gather(visible_lengths(self._model.pieces(cleaned_texts).values), split.sources)
            comma_lengths = tf.gather(self._comma_lengths, tf.maximum(split.positions, 0))
            lengths = tf.where(split.positions < 0, lengths, comma_lengths)
            ids = _regroup(ids, split.values, split.sources)
            begins, ends = self._aligner.align(raw, cleaned, cleaned_texts, ids.with_values(lengths))
            return GraphEncoded(ids, begins, ends)


def _encode(codes: tf.RaggedTensor) -> tf.Tensor:
    return tf.strings.unicode_encode(codes, "UTF-8")


def _regroup(old: tf.RaggedTensor, values: tf.Tensor, sources: tf.Tensor) -> tf.RaggedTensor:
    """Puts values [K] into the rows of those values of `old` that they come from."""
    rows = tf.gather(old.value_rowids(), sources)
    return tf.RaggedTensor.from_value_rowids(values, rows, old.nrows(), validate=False)
